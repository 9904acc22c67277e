/** A call that waits for a decision, with everything that the decision is about. */
import { useState } from "preact/hooks";

import { decide, type Decision } from "../inbox/inbox";
import type { ApprovalRequest } from "../chat/run";
import { toolOf } from "../page/openchat";
import { parsedObject } from "../text/json";
import { fullDate, until } from "../text/time";
import { DecisionForm } from "./decisionform";
import { ArgumentForm } from "./argumentform";
import { Arguments } from "./arguments";
import { LongText } from "./longtext";
import { Preview } from "./preview";
import { VisibleText } from "./visibletext";

interface ApprovalProps {
  chat: string;
  run: string;
  agent: string;
  approval: ApprovalRequest;
  /** Called after the decision was made here. */
  onDecided?: () => void;
}

const QUESTIONS = {
  tool: "This call waits for your approval.",
  outcome_unknown: "It started, but it is unknown whether it took effect.",
  question: "The agent asks you something.",
  auth: "This tool acts in your name.",
};

export function Approval({ chat, run, agent, approval, onDecided }: ApprovalProps) {
  const [mode, setMode] = useState<"idle" | "editing" | "rejecting">("idle");
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const tool = toolOf(agent, approval.tool_name);
  const send = async (decision: Decision): Promise<void> => {
    if (isBusy) return;
    setBusy(true);
    const outcome = await decide(chat, run, approval, decision);
    setBusy(false);
    setProblem(outcome.problem);
    if (outcome.ok) onDecided?.();
  };
  return (
    <section class="approval" aria-label={`Approval: ${approval.tool_name}`} tabIndex={-1}>
      <p class="question">{QUESTIONS[approval.kind]}</p>
      {tool && <p class="muted">{tool.description}</p>}
      {approval.kind === "question" && <AskedQuestion input={approval.tool_input} />}
      {approval.preview && <Preview text={approval.preview} />}
      {approval.kind !== "question" && (
        <Arguments input={approval.tool_input} isFull={!approval.preview} />
      )}
      {approval.redacted && (
        <p class="muted">Secrets in it are not shown; the tool gets what the model wrote.</p>
      )}
      {approval.late_result && (
        <>
          <p>Its result arrived late:</p>
          <LongText text={approval.late_result} label="Late result" />
        </>
      )}
      <p class="fine">
        <span title={`Binds this decision to exactly what is shown: ${approval.digest}`}>
          digest <code>{approval.digest.slice(0, 12)}</code>
        </span>
        {approval.expires_at && (
          <span title={fullDate(approval.expires_at)}>{until(approval.expires_at)}</span>
        )}
      </p>
      {approval.kind !== "tool" && (
        <DecisionForm approval={approval} isBusy={isBusy} onDecide={send} />
      )}
      {approval.kind === "tool" && mode === "idle" && (
        <div class="actions">
          <button class="primary" disabled={isBusy} onClick={() => void send({ approved: true })}>
            Approve
          </button>
          <button disabled={isBusy} onClick={() => setMode("rejecting")}>
            Reject…
          </button>
          <button disabled={isBusy} onClick={() => setMode("editing")}>
            Edit…
          </button>
          <button
            class="quiet"
            disabled={isBusy}
            title="Do not ask again about this tool in this chat. You can revoke this in the inbox."
            onClick={() => void send({ approved: true, remember: "thread" })}
          >
            Allow in this chat
          </button>
        </div>
      )}
      {mode === "editing" && (
        <ArgumentForm
          input={approval.tool_input}
          parameters={tool?.parameters}
          isBusy={isBusy}
          onApprove={(edited) => void send({ approved: true, edited_arguments: edited })}
          onCancel={() => setMode("idle")}
        />
      )}
      {mode === "rejecting" && (
        <RejectForm
          isBusy={isBusy}
          onReject={(message) => void send({ approved: false, message: message || null })}
          onCancel={() => setMode("idle")}
        />
      )}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </section>
  );
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

interface RejectFormProps {
  isBusy: boolean;
  onReject: (message: string) => void;
  onCancel: () => void;
}

function RejectForm({ isBusy, onReject, onCancel }: RejectFormProps) {
  const [message, setMessage] = useState("");
  return (
    <form
      aria-label="Reject"
      onSubmit={(event) => {
        event.preventDefault();
        onReject(message.trim());
      }}
    >
      <label>
        Reason (the agent reads it)
        <textarea
          rows={2}
          maxLength={4000}
          value={message}
          ref={(element) => element?.focus()}
          onInput={(event) => setMessage(event.currentTarget.value)}
        />
      </label>
      <div class="actions">
        <button class="danger" disabled={isBusy}>
          Reject
        </button>
        <button type="button" onClick={onCancel}>
          Back
        </button>
      </div>
    </form>
  );
}
