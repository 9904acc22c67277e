/** A run once more, event by event: what the conversation showed after each of them. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { StoredFrame } from "../api/frames";
import { errorText } from "../api/request";
import { eventsOf, runAfter } from "../chat/replay";
import type { Run } from "../chat/run";
import { replayedRun } from "../page/dialogs";
import { openChat, toolTitle } from "../page/openchat";
import { plural, t } from "../text/language";
import { money } from "../text/money";
import { duration } from "../text/time";
import { Dialog } from "./dialog";
import { IconButton } from "./icon";
import { MessageText } from "./message";
import { StepView } from "./turn";

export function ReplayDialog() {
  const id = replayedRun.value;
  if (id === null) return null;
  return (
    <Dialog title={t("Replay")} class="widest" onClose={() => (replayedRun.value = null)}>
      <Replay key={id} id={id} />
    </Dialog>
  );
}

function Replay({ id }: { id: string }) {
  const { session } = openChat.value;
  const [events, setEvents] = useState<StoredFrame[] | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const leaving = new AbortController();
    eventsOf(session.id, id, leaving.signal)
      .then(setEvents)
      .catch((error: unknown) => leaving.signal.aborted || setProblem(errorText(error)));
    return () => leaving.abort();
  }, [id]);
  if (problem) return <p class="problem">{problem}</p>;
  if (!events) return <p class="muted">{t("Loading…")}</p>;
  return <Player id={id} events={events} />;
}

function Player({ id, events }: { id: string; events: StoredFrame[] }) {
  const { session } = openChat.value;
  const [count, setCount] = useState(1);
  const slider = useRef<HTMLInputElement>(null);
  const last = events.length;
  const run = useMemo(() => runAfter(id, events, count), [count]);
  const go = (to: number): void => setCount(Math.max(1, Math.min(last, to)));
  useEffect(() => slider.current?.focus(), []);
  useEffect(() => {
    const step = (event: KeyboardEvent): void => {
      // The slider has these keys already, and text its own.
      const isTaken = (event.target as HTMLElement).matches("input, textarea, select, pre");
      if (isTaken || event.altKey || event.ctrlKey || event.metaKey) return;
      const to = targetOf(event.key, count, last);
      if (to === null) return;
      event.preventDefault();
      go(to);
    };
    document.addEventListener("keydown", step);
    return () => document.removeEventListener("keydown", step);
  }, [count, last]);
  const event = events[count - 1];
  if (!event) return <p class="muted">{t("The log has no events of this run.")}</p>;
  const words = eventText(event, run.agent || session.agent.value);
  return (
    <div class="replay">
      <div class="replay-controls" role="group" aria-label={t("Steps")}>
        <IconButton
          icon="first"
          label={t("First step")}
          disabled={count === 1}
          onClick={() => go(1)}
        />
        <IconButton
          icon="left"
          label={t("Step back")}
          disabled={count === 1}
          onClick={() => go(count - 1)}
        />
        <input
          type="range"
          min={1}
          max={last}
          value={count}
          aria-label={t("Step")}
          aria-valuetext={t("{number} of {all}: {what}", { number: count, all: last, what: words })}
          ref={slider}
          onInput={(event) => go(Number(event.currentTarget.value))}
        />
        <IconButton
          icon="right"
          label={t("Step on")}
          disabled={count === last}
          onClick={() => go(count + 1)}
        />
        <IconButton
          icon="last"
          label={t("Last step")}
          disabled={count === last}
          onClick={() => go(last)}
        />
      </div>
      <p class="replay-step" role="status">
        <strong>{words}</strong>
        <span class="muted">{factsOf(events, count).join(" · ")}</span>
      </p>
      <Shown chat={session.id} run={{ ...run, agent: run.agent || session.agent.value }} />
    </div>
  );
}

function Shown({ chat, run }: { chat: string; run: Run }) {
  const items = openChat.value.session.run(run.id).value.items;
  return (
    <article class="turn" aria-label={t("The conversation after this step")}>
      <div class="message">
        <MessageText text={run.message} items={items} />
      </div>
      <div class="reply">
        {run.steps.map((step, at) => (
          <StepView
            key={step.kind === "call" ? step.id : at}
            chat={chat}
            run={run}
            step={step}
            isPast
          />
        ))}
        {run.error && <p class="problem">{run.error.message}</p>}
      </div>
    </article>
  );
}

function targetOf(key: string, count: number, last: number): number | null {
  switch (key) {
    case "ArrowLeft":
    case "ArrowUp":
      return count - 1;
    case "ArrowRight":
    case "ArrowDown":
      return count + 1;
    case "Home":
      return 1;
    case "End":
      return last;
    default:
      return null;
  }
}

/** Where the step is, when it was, and what it took. */
function factsOf(events: readonly StoredFrame[], count: number): string[] {
  const event = events[count - 1];
  const began = Date.parse(events[0]?.at ?? "");
  const after = Date.parse(event?.at ?? "") - began;
  const facts = [t("{number} of {all}", { number: count, all: events.length })];
  if (Number.isFinite(after)) facts.push(t("after {time}", { time: duration(after) }));
  if (event && "usage" in event && event.usage) {
    const tokens = event.usage.prompt_tokens + event.usage.completion_tokens;
    facts.push(plural(tokens, "{count} token", "{count} tokens"));
  }
  if (event && "cost" in event && event.cost) facts.push(money(event.cost));
  return facts;
}

function eventText(event: StoredFrame, agent: string): string {
  switch (event.name) {
    case "interaction_queued":
      return t("The message waits for its turn");
    case "interaction_started":
      return t("The run begins");
    case "thinking":
      return event.spoken ? t("The agent says something") : t("The agent thinks");
    case "answer":
      return t("The agent answers");
    case "tool_call":
      return t("{tool} is called", { tool: toolTitle(agent, event.tool_name) });
    case "tool_result":
      return t("{tool} has its result", { tool: toolTitle(agent, event.tool_name) });
    case "approval_required":
      return t("{tool} needs a decision", { tool: toolTitle(agent, event.tool_name) });
    case "approved":
      return t("{tool} is approved", { tool: toolTitle(agent, event.tool_name) });
    case "rejected":
      return t("{tool} is refused", { tool: toolTitle(agent, event.tool_name) });
    case "vote_cast":
    case "vote_withdrawn":
    case "review_extended":
      return t("{tool} is voted about", { tool: toolTitle(agent, event.tool_name) });
    case "cancelled":
      return t("The run is stopped");
    case "error":
      return t("The run fails");
    case "interaction_complete":
      return t("The run is over");
    case "feedback_given":
      return t("The answer is rated");
  }
}
