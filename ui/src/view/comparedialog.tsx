/** Two versions of a message side by side: what was said, done and answered, and what it took. */
import { useState } from "preact/hooks";

import { runTime } from "../chat/moments";
import { statusText, type Run, type Step } from "../chat/run";
import { comparedRun } from "../page/dialogs";
import { openChat, toolTitle } from "../page/openchat";
import { plural, t } from "../text/language";
import { money } from "../text/money";
import { duration, fullDate } from "../text/time";
import { Dialog } from "./dialog";
import { Markdown } from "./markdown";
import { stateText } from "./toolcard";
import { VisibleText } from "./visibletext";
import { Steering } from "./steering";

export function CompareDialog() {
  const id = comparedRun.value;
  if (id === null) return null;
  return (
    <Dialog title={t("Compare versions")} class="widest" onClose={() => (comparedRun.value = null)}>
      <Versions key={id} id={id} />
    </Dialog>
  );
}

function Versions({ id }: { id: string }) {
  const { session } = openChat.value;
  const all = session.siblings(id);
  const at = all.indexOf(id);
  const [left, setLeft] = useState(at > 0 ? at - 1 : 0);
  const [right, setRight] = useState(at > 0 ? at : 1);
  return (
    <div class="versions">
      <Version number={left} ids={all} label={t("Left version")} onChoose={setLeft} />
      <Version number={right} ids={all} label={t("Right version")} onChoose={setRight} />
    </div>
  );
}

interface VersionProps {
  number: number;
  ids: string[];
  label: string;
  onChoose: (number: number) => void;
}

function Version({ number, ids, label, onChoose }: VersionProps) {
  const run = openChat.value.session.run(ids[number] ?? "").value;
  return (
    <section class="version" aria-label={label}>
      <label>
        {label}
        <select
          value={String(number)}
          onChange={(event) => onChoose(Number(event.currentTarget.value))}
        >
          {ids.map((id, at) => (
            <option key={id} value={String(at)}>
              {t("{number} of {all}", { number: at + 1, all: ids.length })}
            </option>
          ))}
        </select>
      </label>
      <p class="said">
        <VisibleText text={run.message} />
      </p>
      {run.steps.map((step, at) => (
        <StepLine key={at} run={run} step={step} />
      ))}
      {run.error && <p class="problem">{run.error.message}</p>}
      <p class="fine">{factsOf(run).join(" · ")}</p>
    </section>
  );
}

function StepLine({ run, step }: { run: Run; step: Step }) {
  if (step.kind === "thought") return null;
  if (step.kind === "steered") return <Steering run={run} step={step} />;
  if (step.kind !== "call") return <Markdown text={step.text} />;
  return (
    <p class="muted">
      {toolTitle(run.agent, step.tool)} <code>{step.tool}</code>: {stateText(run, step)}
    </p>
  );
}

function factsOf(run: Run): string[] {
  const took = runTime(run);
  return [
    run.agent,
    statusText(run),
    ...(run.usage?.total_tokens
      ? [plural(run.usage.total_tokens, "{count} token", "{count} tokens")]
      : []),
    ...(run.cost ? [money(run.cost)] : []),
    ...(took === null ? [] : [duration(took)]),
    fullDate(run.createdAt),
  ];
}
