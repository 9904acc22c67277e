/** One call of a tool, from its approval to its result. */
import { useState } from "preact/hooks";

import { callTime } from "../chat/moments";
import type { CallStep, Run, Verdict } from "../chat/run";
import { toolOf, toolTitle } from "../page/openchat";
import { t } from "../text/language";
import { duration } from "../text/time";
import { Approval } from "./approval";
import { Arguments } from "./arguments";
import { Attachments } from "./attachments";
import { Icon } from "./icon";
import { LongText } from "./longtext";
import { Risk } from "./risk";

interface ToolCardProps {
  chat: string;
  run: Run;
  call: CallStep;
  /** It is shown as it was: nothing can be decided here. */
  isPast?: boolean;
}

export function ToolCard({ chat, run, call, isPast }: ToolCardProps) {
  const [isOpen, setOpen] = useState<boolean | null>(null);
  const shows = isOpen ?? (call.phase === "running" || isPast === true);
  const asks = call.phase === "asked" && !isPast;
  const took = callTime(run, call.id);
  const body = `call-${call.id}`;
  return (
    <article
      class="call"
      data-phase={phaseOf(run, call)}
      aria-label={t("Tool call {tool}", { tool: call.tool })}
    >
      <header>
        <button
          type="button"
          class="call-title"
          aria-expanded={shows || asks}
          aria-controls={body}
          onClick={() => setOpen(!shows)}
        >
          <Icon name={call.phase === "asked" ? "shield" : "tool"} />
          <span class="tool-title">{toolTitle(run.agent, call.tool)}</span>
          <code>{call.tool}</code>
          <Risk effect={toolOf(run.agent, call.tool)?.effect} />
          <span class="outcome">
            {call.isGranted && (
              <span
                class="risk"
                title={t("You have allowed this tool in this chat without asking.")}
              >
                {t("allowed by you")}
              </span>
            )}
            <span class="state">{stateText(run, call)}</span>
            {took !== null && <span class="took">{duration(took)}</span>}
          </span>
        </button>
      </header>
      <div id={body} class="call-body" hidden={!shows && !asks}>
        {call.verdict && <DecisionText verdict={call.verdict} />}
        {call.approval && asks ? (
          <Approval
            key={call.approval.approval_id}
            chat={chat}
            run={run.id}
            agent={run.agent}
            approval={call.approval}
          />
        ) : (
          (shows || null) && <Content call={call} />
        )}
      </div>
      {call.attachments.length > 0 && (
        <Attachments chat={chat} run={run.id} call={call.id} attachments={call.attachments} />
      )}
    </article>
  );
}

function Content({ call }: { call: CallStep }) {
  return (
    <>
      <h3 class="label">{t("Arguments")}</h3>
      <Arguments input={call.input} />
      {call.output !== null && (
        <>
          <h3 class="label">{t("Result")}</h3>
          <LongText text={call.output} label={t("Result")} />
        </>
      )}
      {call.output === null && call.preview.text && (
        <>
          <h3 class="label">{t("Output so far")}</h3>
          <LongText text={call.preview.text} isTail label={t("Output so far")} />
        </>
      )}
    </>
  );
}

const whoText = (by: Verdict["by"]): string =>
  ({
    human: t("a user"),
    policy: t("policy"),
    timeout: t("timeout: no decision came in time"),
    cancel: t("the cancellation of the run"),
    failure: t("the failure of the run"),
  })[by];

function DecisionText({ verdict }: { verdict: Verdict }) {
  const known = verdict.by === "human" ? verdict.decidedBy : null;
  const who = known ?? whoText(verdict.by);
  const isAnswer = verdict.answer !== undefined;
  return (
    <p class="verdict" data-approved={verdict.approved}>
      {isAnswer
        ? t("Answered by {who}", { who })
        : verdict.approved
          ? t("Approved by {who}", { who })
          : t("Refused by {who}", { who })}
      {isAnswer && `: ${answerText(verdict.answer)}`}
      {verdict.edited && t(", with edited arguments")}
      {verdict.choice && `: ${verdict.choice.replace("_", " ")}`}
      {verdict.message && <>: “{verdict.message}”</>}
    </p>
  );
}

const answerText = (answer: unknown): string =>
  typeof answer === "string" ? answer : JSON.stringify(answer);

/** In a run that is over no call waits or runs. */
function phaseOf(run: Run, call: CallStep): CallStep["phase"] {
  const isOpen = call.phase === "asked" || call.phase === "running" || call.phase === "decided";
  return run.status !== "RUNNING" && isOpen ? "refused" : call.phase;
}

export function stateText(run: Run, call: CallStep): string {
  switch (phaseOf(run, call)) {
    case "asked":
      return call.approval?.kind === "question" ? t("asks you something") : t("needs approval");
    case "decided":
      return t("approved");
    case "running":
      return t("running");
    case "done":
      return call.verdict?.edited ? t("done, edited") : t("done");
    case "refused":
      return refusedText(run, call.verdict);
  }
}

function refusedText(run: Run, verdict: Verdict | null): string {
  if (!verdict || verdict.approved || verdict.answer !== undefined)
    return run.status === "FAILED" ? t("not run: the run failed") : t("stopped");
  return {
    human: t("rejected"),
    policy: t("forbidden by policy"),
    timeout: t("expired"),
    cancel: t("withdrawn"),
    failure: t("not run: the run failed"),
  }[verdict.by];
}
