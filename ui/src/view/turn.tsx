/** A message with all steps of its answer. */
import { useEffect, useState } from "preact/hooks";

import { runTime } from "../chat/moments";
import { answerOf, cutText, type Run, type Step } from "../chat/run";
import type { OpenChat } from "../page/openchat";
import { shownTimeline } from "../page/dialogs";
import { plural, t } from "../text/language";
import { money } from "../text/money";
import { duration, fullDate } from "../text/time";
import { BatchDecision } from "./batch";
import { CopyButton } from "./copybutton";
import { FeedbackNote, Thumbs, type FeedbackProps } from "./feedback";
import { Icon, IconButton } from "./icon";
import { Markdown } from "./markdown";
import { Message } from "./message";
import { Queued } from "./queued";
import { RetryMenu } from "./retrymenu";
import { Steering } from "./steering";
import { Thinking } from "./thinking";
import { ToolCard } from "./toolcard";

const STEPS_SHOWN = 100;

export function Turn({ openChat, id }: { openChat: OpenChat; id: string }) {
  const run = openChat.session.run(id).value;
  const [shown, setShown] = useState(STEPS_SHOWN);
  const lacksAnswer = run.status === "CANCELLED" && !answerOf(run);
  useEffect(() => {
    if (lacksAnswer) void openChat.session.loadPartial(id);
  }, [lacksAnswer]);
  const left = Math.max(0, run.steps.length - shown);
  return (
    <article
      class="turn"
      data-run={run.id}
      data-status={run.status}
      aria-label={labelOf(run)}
      tabIndex={-1}
    >
      <h2 class="unseen">{labelOf(run)}</h2>
      <Message openChat={openChat} run={run} />
      <div class="reply">
        {run.queued && <Queued chat={openChat.session.id} run={run} />}
        {left > 0 && (
          <button type="button" class="quiet" onClick={() => setShown(shown + STEPS_SHOWN)}>
            {t("Show {count} earlier steps of {all}", {
              count: Math.min(left, STEPS_SHOWN),
              all: left,
            })}
          </button>
        )}
        {run.steps.slice(left).map((step, at) => (
          <StepView key={keyOf(step, left + at)} chat={openChat.session.id} run={run} step={step} />
        ))}
        <BatchDecision chat={openChat.session.id} run={run} />
        {run.preview?.thinking.text && <Thinking text={run.preview.thinking.text} isLive />}
        {run.preview?.answer.text && (
          <div class="answer" data-live="true">
            <Markdown text={run.preview.answer.text} isLive />
          </div>
        )}
        {isWorking(run) && <Working />}
        {run.isStopping && <p class="muted">{t("Stopping after this step.")}</p>}
        {run.status === "COMPLETED" && !answerOf(run) && (
          <p class="muted">{t("The agent ended without an answer.")}</p>
        )}
        {run.error && <FailureBox openChat={openChat} run={run} />}
        <Footer openChat={openChat} run={run} />
      </div>
    </article>
  );
}

interface StepProps {
  chat: string;
  run: Run;
  step: Step;
  /** It is shown as it was: nothing can be decided here. */
  isPast?: boolean;
}

export function StepView({ chat, run, step, isPast }: StepProps) {
  switch (step.kind) {
    case "thought":
      return <Thinking text={step.text} />;
    case "remark":
      return (
        <div class="remark">
          <Markdown text={step.text} />
        </div>
      );
    case "steered":
      return <Steering run={run} step={step} />;
    case "call":
      return <ToolCard chat={chat} run={run} call={step} isPast={isPast ?? false} />;
    case "answer":
      return (
        <div class="answer">
          <Markdown text={step.text} />
          {step.isCut && <p class="cut">{cutText(step)}</p>}
        </div>
      );
  }
}

/** Whether nothing else on the screen shows that the agent is working. */
function isWorking(run: Run): boolean {
  if (run.status !== "RUNNING" || run.queued || run.preview?.answer.text) return false;
  return !run.steps.some(
    (step) => step.kind === "call" && (step.phase === "asked" || step.phase === "running"),
  );
}

function Working() {
  return (
    <p class="working">
      <span class="unseen">{t("The agent is working")}</span>
      <i />
      <i />
      <i />
    </p>
  );
}

function FailureBox({ openChat, run }: { openChat: OpenChat; run: Run }) {
  return (
    <div class="failure" role="alert">
      <p>{run.error?.message}</p>
      {run.error?.code === "llm_context" && (
        <p>{t("Begin a new chat, or edit an earlier message to go on from there.")}</p>
      )}
      <p class="fine">
        <code>{run.error?.code}</code>
        {run.error?.correlation_id && (
          <>
            {" "}
            {t("id")} <code>{run.error.correlation_id}</code>
          </>
        )}
      </p>
      {run.status !== "RUNNING" && (
        <button type="button" onClick={() => void openChat.sender.replaceMessage(run, null)}>
          <Icon name="again" /> {t("Try again")}
        </button>
      )}
    </div>
  );
}

function Footer({ openChat, run }: { openChat: OpenChat; run: Run }) {
  const [isNoting, setNoting] = useState(false);
  if (run.status === "RUNNING") return null;
  const feedback = { openChat, run, isNoting, setNoting };
  return (
    <>
      <FooterLine {...feedback} />
      <FeedbackNote {...feedback} />
    </>
  );
}

function FooterLine(feedback: FeedbackProps) {
  const { openChat, run } = feedback;
  const took = runTime(run);
  return (
    <footer class="turn-footer">
      {answerOf(run) && <CopyButton text={() => answerOf(run)} label={t("Copy answer")} />}
      <IconButton
        icon="again"
        label={t("Regenerate answer")}
        class="regenerate"
        disabled={openChat.session.activeId.value !== null}
        onClick={() => void openChat.sender.replaceMessage(run, null)}
      />
      <RetryMenu openChat={openChat} run={run} />
      {answerOf(run) && <Thumbs {...feedback} />}
      <IconButton
        icon="bars"
        label={t("Show timeline")}
        onClick={() => (shownTimeline.value = run.id)}
      />
      <span class="facts">
        {run.status === "CANCELLED" && <span>{t("stopped")}</span>}
        {run.usage && run.usage.total_tokens > 0 && (
          <span title={usageText(run)}>
            {plural(run.usage.total_tokens, "{count} token", "{count} tokens")}
          </span>
        )}
        {run.cost && <span title={costText(run)}>{money(run.cost)}</span>}
        {took !== null && <span>{duration(took)}</span>}
        <time dateTime={run.createdAt} title={fullDate(run.createdAt)}>
          {run.agent}
        </time>
      </span>
    </footer>
  );
}

const usageText = ({ usage }: Run): string =>
  t("{read} tokens read, {written} written", {
    read: usage?.prompt_tokens ?? 0,
    written: usage?.completion_tokens ?? 0,
  });

const costText = ({ cost }: Run): string =>
  t("{amount} {currency}, by the price in the agent file", {
    amount: String(cost?.amount),
    currency: cost?.currency ?? "",
  });

const labelOf = (run: Run): string => t("Message: {text}", { text: run.message.slice(0, 60) });

const keyOf = (step: Step, at: number): string =>
  step.kind === "call" || step.kind === "steered" ? step.id : `step ${at}`;
