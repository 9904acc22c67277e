/** A call that waits for a decision, with everything that the decision is about. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { decide, waiting, withdrawVote, type Decision } from "../inbox/inbox";
import type { ApprovalRequest } from "../chat/run";
import { toolOf } from "../page/openchat";
import { parsedObject } from "../text/json";
import { t } from "../text/language";
import { fullDate, until } from "../text/time";
import { DecisionForm } from "./decisionform";
import { ArgumentForm } from "./argumentform";
import { Arguments } from "./arguments";
import { Comparison } from "./comparison";
import { useSuccessor } from "./focus";
import { LongText } from "./longtext";
import { Preview, ShownPreview } from "./preview";
import { Review } from "./review";
import { VisibleText } from "./visibletext";

interface ApprovalProps {
  chat: string;
  run: string;
  agent: string;
  approval: ApprovalRequest;
  /** Called after the decision was made here. */
  onDecided?: () => void;
}

const questionOf = (kind: ApprovalRequest["kind"]): string =>
  ({
    tool: t("This call waits for your approval."),
    outcome_unknown: t("It started, but it is unknown whether it took effect."),
    question: t("The agent asks you something."),
    auth: t("This tool acts in your name."),
  })[kind];

type Mode = "idle" | "editing" | "rejecting" | "approving";

export function Approval({ chat, run, agent, approval, onDecided }: ApprovalProps) {
  const [mode, setMode] = useState<Mode>("idle");
  const card = useRef<HTMLDivElement>(null);
  useFocusIn(card, mode);
  const successor = useSuccessor(card);
  const [edited, setEdited] = useState<Record<string, unknown> | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const tool = toolOf(agent, approval.tool_name);
  const { review, reason_required: needsReason } = approval;
  // A chat's own stream does not say whether its reader is one of those who decide.
  const known = waiting.value.find((entry) => entry.approval_id === approval.approval_id);
  const mayDecide = !review || known?.may_decide === true;
  const hasVoted = known?.my_vote === true;
  const send = async (decision: Decision): Promise<void> => {
    if (isBusy) return;
    successor.hold();
    setBusy(true);
    const outcome = await decide(chat, run, approval, decision);
    setBusy(false);
    setProblem(outcome.problem);
    if (outcome.ok) onDecided?.();
  };
  const approve = (changed: Record<string, unknown> | null): void => {
    if (needsReason) {
      setEdited(changed);
      setMode("approving");
    } else void send(changed ? { approved: true, edited_arguments: changed } : { approved: true });
  };
  const withdraw = async (): Promise<void> => {
    setBusy(true);
    const outcome = await withdrawVote(approval.approval_id);
    setBusy(false);
    setProblem(outcome.problem);
  };
  return (
    <div
      class="approval"
      ref={card}
      role="group"
      aria-label={t("Approval: {tool}", { tool: approval.tool_name })}
      tabIndex={-1}
    >
      <p class="question">
        {mayDecide ? questionOf(approval.kind) : t("This call waits for the approval of others.")}
      </p>
      {approval.budget && <p>{approval.budget}</p>}
      {tool && <p class="muted">{tool.description}</p>}
      {approval.kind === "question" && <AskedQuestion input={approval.tool_input} />}
      {approval.preview && <Preview text={approval.preview} />}
      <ShownPreview approval={approval} />
      {approval.kind !== "question" && (
        <Arguments input={approval.tool_input} isFull={!approval.preview} />
      )}
      {approval.kind === "tool" && <Comparison approval={approval} />}
      {approval.redacted && (
        <p class="muted">{t("Secrets in it are not shown; the tool gets what the model wrote.")}</p>
      )}
      {approval.late_result && (
        <>
          <p>{t("Its result arrived late:")}</p>
          <LongText text={approval.late_result} label={t("Late result")} />
        </>
      )}
      <p class="fine">
        <span
          title={t("Binds this decision to exactly what is shown: {digest}", {
            digest: approval.digest,
          })}
        >
          {t("digest")} <code>{approval.digest.slice(0, 12)}</code>
        </span>
        {approval.expires_at && (
          <span title={fullDate(approval.expires_at)}>{until(approval.expires_at)}</span>
        )}
      </p>
      {review && <Review approval={approval.approval_id} review={review} mayDecide={mayDecide} />}
      {approval.kind !== "tool" && (
        <DecisionForm approval={approval} isBusy={isBusy} onDecide={send} />
      )}
      {approval.kind === "tool" && mode === "idle" && mayDecide && (
        <div class="actions">
          {hasVoted ? (
            <button disabled={isBusy} onClick={() => void withdraw()}>
              {t("Withdraw my vote")}
            </button>
          ) : (
            <button class="primary" disabled={isBusy} onClick={() => approve(null)}>
              {needsReason ? t("Approve…") : t("Approve")}
            </button>
          )}
          <button disabled={isBusy} onClick={() => setMode("rejecting")}>
            {t("Reject…")}
          </button>
          {(!review || review.quorum === 1) && (
            <button disabled={isBusy} onClick={() => setMode("editing")}>
              {t("Edit…")}
            </button>
          )}
          {!review && !needsReason && (
            <button
              class="quiet"
              disabled={isBusy}
              title={t(
                "Do not ask again about this tool in this chat. You can revoke this in the inbox.",
              )}
              onClick={() => void send({ approved: true, remember: "thread" })}
            >
              {t("Allow in this chat")}
            </button>
          )}
        </div>
      )}
      {mode === "editing" && (
        <ArgumentForm
          input={approval.tool_input}
          parameters={tool?.parameters}
          isBusy={isBusy}
          onApprove={approve}
          onCancel={() => setMode("idle")}
        />
      )}
      {mode === "approving" && (
        <ReasonForm
          approves
          isRequired
          isBusy={isBusy}
          onDecide={(message) =>
            void send({ approved: true, message, ...(edited && { edited_arguments: edited }) })
          }
          onCancel={() => setMode("idle")}
        />
      )}
      {mode === "rejecting" && (
        <ReasonForm
          isRequired={needsReason === true}
          isBusy={isBusy}
          onDecide={(message) => void send({ approved: false, message: message || null })}
          onCancel={() => setMode("idle")}
        />
      )}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

/** A form that was asked for gets the focus, and the call when the form is left. */
function useFocusIn(card: { current: HTMLDivElement | null }, mode: Mode): void {
  const before = useRef(mode);
  useLayoutEffect(() => {
    if (before.current === mode) return;
    before.current = mode;
    const form = card.current?.querySelector("form");
    const field = form?.querySelector<HTMLElement>("textarea, input, select, button");
    (field ?? card.current)?.focus({ preventScroll: true });
    (form ?? card.current)?.scrollIntoView({ block: "nearest" });
  }, [mode]);
}

/** The tool's question, and the arguments of the call. */
function AskedQuestion({ input }: { input: string }) {
  const { question, call } = parsedObject(input) ?? {};
  return (
    <>
      <blockquote class="asked">
        <VisibleText
          text={typeof question === "string" ? question : JSON.stringify(question ?? null)}
        />
      </blockquote>
      <Arguments input={JSON.stringify(call ?? {})} />
    </>
  );
}

interface ReasonFormProps {
  approves?: boolean;
  /** A rule wants a reason. */
  isRequired: boolean;
  isBusy: boolean;
  onDecide: (message: string) => void;
  onCancel: () => void;
}

function ReasonForm({ approves, isRequired, isBusy, onDecide, onCancel }: ReasonFormProps) {
  const [message, setMessage] = useState("");
  return (
    <form
      aria-label={approves ? t("Approve") : t("Reject")}
      onSubmit={(event) => {
        event.preventDefault();
        onDecide(message.trim());
      }}
    >
      <label>
        {approves ? t("Reason") : t("Reason (the agent reads it)")}
        {isRequired && <span class="muted"> {t("A rule wants a reason for this decision.")}</span>}
        <textarea
          rows={2}
          maxLength={4000}
          value={message}
          onInput={(event) => setMessage(event.currentTarget.value)}
        />
      </label>
      <div class="actions">
        <button
          class={approves ? "primary" : "danger"}
          disabled={isBusy || (isRequired && !message.trim())}
        >
          {approves ? t("Approve") : t("Reject")}
        </button>
        <button type="button" onClick={onCancel}>
          {t("Back")}
        </button>
      </div>
    </form>
  );
}
