/** A message and everything it led to. */
import { useEffect, useState } from "preact/hooks";

import { runTime } from "../chat/moments";
import { answerOf, type Run, type Step } from "../chat/run";
import type { Room } from "../page/room";
import { shownTimeline } from "../page/dialogs";
import { money } from "../text/money";
import { duration, fullDate } from "../text/time";
import { Copying } from "./copying";
import { Icon, IconButton } from "./icon";
import { Markdown } from "./markdown";
import { Message } from "./message";
import { Thinking } from "./thinking";
import { ToolCard } from "./toolcard";

const STEPS_SHOWN = 100;

export function Turn({ room, id }: { room: Room; id: string }) {
  const run = room.session.run(id).value;
  const [shown, setShown] = useState(STEPS_SHOWN);
  const isMute = run.status === "CANCELLED" && !answerOf(run);
  useEffect(() => {
    if (isMute) void room.session.recallCut(id);
  }, [isMute]);
  const left = Math.max(0, run.steps.length - shown);
  return (
    <article
      class="turn"
      data-run={run.id}
      data-status={run.status}
      aria-label={labelOf(run)}
      tabIndex={-1}
    >
      <Message room={room} run={run} />
      <div class="reply">
        {run.queued && <p class="muted">Waits for its turn.</p>}
        {left > 0 && (
          <button type="button" class="quiet" onClick={() => setShown(shown + STEPS_SHOWN)}>
            Show {Math.min(left, STEPS_SHOWN)} earlier steps of {left}
          </button>
        )}
        {run.steps.slice(left).map((step, at) => (
          <StepView key={keyOf(step, left + at)} chat={room.session.id} run={run} step={step} />
        ))}
        {run.preview?.thinking.text && <Thinking text={run.preview.thinking.text} isLive />}
        {run.preview?.answer.text && (
          <div class="answer" data-live="true">
            <Markdown text={run.preview.answer.text} />
          </div>
        )}
        {isWorking(run) && <Working />}
        {run.error && <Failed room={room} run={run} />}
        <Footer room={room} run={run} />
      </div>
    </article>
  );
}

function StepView({ chat, run, step }: { chat: string; run: Run; step: Step }) {
  switch (step.kind) {
    case "thought":
      return <Thinking text={step.text} />;
    case "call":
      return <ToolCard chat={chat} run={run} call={step} />;
    case "answer":
      return (
        <div class="answer">
          <Markdown text={step.text} />
          {step.isCut && <p class="cut">Stopped here.</p>}
        </div>
      );
  }
}

/** Whether nothing else on the screen says that something goes on. */
function isWorking(run: Run): boolean {
  if (run.status !== "RUNNING" || run.queued || run.preview?.answer.text) return false;
  return !run.steps.some(
    (step) => step.kind === "call" && (step.phase === "asked" || step.phase === "running"),
  );
}

function Working() {
  return (
    <p class="working">
      <span class="unseen">The agent is working</span>
      <i />
      <i />
      <i />
    </p>
  );
}

function Failed({ room, run }: { room: Room; run: Run }) {
  return (
    <div class="failure" role="alert">
      <p>{run.error?.message}</p>
      <p class="fine">
        <code>{run.error?.code}</code>
        {run.error?.correlation_id && (
          <>
            {" "}
            id <code>{run.error.correlation_id}</code>
          </>
        )}
      </p>
      {run.status !== "RUNNING" && (
        <button type="button" onClick={() => void room.voice.sayInstead(run, null)}>
          <Icon name="again" /> Try again
        </button>
      )}
    </div>
  );
}

function Footer({ room, run }: { room: Room; run: Run }) {
  if (run.status === "RUNNING") return null;
  const took = runTime(run);
  return (
    <footer class="turn-footer">
      {answerOf(run) && <Copying text={() => answerOf(run)} label="Copy answer" />}
      <IconButton
        icon="again"
        label="Regenerate answer"
        disabled={room.session.activeId.value !== null}
        onClick={() => void room.voice.sayInstead(run, null)}
      />
      <IconButton
        icon="bars"
        label="Show timeline"
        onClick={() => (shownTimeline.value = run.id)}
      />
      <span class="facts">
        {run.status === "CANCELLED" && <span>stopped</span>}
        {run.usage && run.usage.total_tokens > 0 && (
          <span title={usageWords(run)}>{run.usage.total_tokens.toLocaleString()} tokens</span>
        )}
        {run.cost && <span title={costWords(run)}>{money(run.cost)}</span>}
        {took !== null && <span>{duration(took)}</span>}
        <time dateTime={run.createdAt} title={fullDate(run.createdAt)}>
          {run.agent}
        </time>
      </span>
    </footer>
  );
}

const usageWords = ({ usage }: Run): string =>
  `${usage?.prompt_tokens} tokens read, ${usage?.completion_tokens} written`;

const costWords = ({ cost }: Run): string =>
  `${cost?.amount} ${cost?.currency}, by the price in the agent's file`;

const labelOf = (run: Run): string => `Message: ${run.message.slice(0, 60)}`;

const keyOf = (step: Step, at: number): string => (step.kind === "call" ? step.id : `step ${at}`);
