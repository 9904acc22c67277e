/** A decision to be made, with everything it is about in sight. */
import { useState } from "preact/hooks";

import { decide, type Decision } from "../inbox/inbox";
import type { Asking } from "../chat/run";
import { toolOf } from "../page/room";
import { parsedObject } from "../text/json";
import { fullDate, until } from "../text/time";
import { Answering } from "./answering";
import { ArgumentForm } from "./argumentform";
import { Arguments } from "./arguments";
import { LongText } from "./longtext";
import { Preview } from "./preview";
import { Revealing } from "./revealing";

interface ApprovalProps {
  chat: string;
  run: string;
  agent: string;
  asking: Asking;
  /** Called once it is decided here. */
  onDecided?: () => void;
}

const QUESTIONS = {
  tool: "This call waits for your approval.",
  outcome_unknown: "It started, and nobody knows whether it took effect.",
  question: "The agent asks you something.",
  auth: "This tool acts in your name.",
};

export function Approval({ chat, run, agent, asking, onDecided }: ApprovalProps) {
  const [mode, setMode] = useState<"idle" | "editing" | "rejecting">("idle");
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const tool = toolOf(agent, asking.tool_name);
  const settle = async (decision: Decision): Promise<void> => {
    if (isBusy) return;
    setBusy(true);
    const outcome = await decide(chat, run, asking, decision);
    setBusy(false);
    setProblem(outcome.words);
    if (outcome.ok) onDecided?.();
  };
  return (
    <section class="approval" aria-label={`Approval: ${asking.tool_name}`} tabIndex={-1}>
      <p class="question">{QUESTIONS[asking.kind]}</p>
      {tool && <p class="muted">{tool.description}</p>}
      {asking.kind === "question" && <Asked input={asking.tool_input} />}
      {asking.preview && <Preview text={asking.preview} />}
      {asking.kind !== "question" && (
        <Arguments input={asking.tool_input} isFull={!asking.preview} />
      )}
      {asking.late_result && (
        <>
          <p>Its result arrived late:</p>
          <LongText text={asking.late_result} label="Late result" />
        </>
      )}
      <p class="fine">
        <span title={`Binds this decision to exactly what is shown: ${asking.digest}`}>
          digest <code>{asking.digest.slice(0, 12)}</code>
        </span>
        {asking.expires_at && (
          <span title={fullDate(asking.expires_at)}>{until(asking.expires_at)}</span>
        )}
      </p>
      {asking.kind !== "tool" && <Answering asking={asking} isBusy={isBusy} onDecide={settle} />}
      {asking.kind === "tool" && mode === "idle" && (
        <div class="actions">
          <button class="primary" disabled={isBusy} onClick={() => void settle({ approved: true })}>
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
            title="Do not ask again about this tool in this chat. It can be taken back in the inbox."
            onClick={() => void settle({ approved: true, remember: "thread" })}
          >
            Allow in this chat
          </button>
        </div>
      )}
      {mode === "editing" && (
        <ArgumentForm
          input={asking.tool_input}
          parameters={tool?.parameters}
          isBusy={isBusy}
          onApprove={(edited) => void settle({ approved: true, edited_arguments: edited })}
          onCancel={() => setMode("idle")}
        />
      )}
      {mode === "rejecting" && (
        <Rejecting
          isBusy={isBusy}
          onReject={(message) => void settle({ approved: false, message: message || null })}
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

/** The question in the tool's own words, and what the tool was called with. */
function Asked({ input }: { input: string }) {
  const { question, call } = parsedObject(input) ?? {};
  return (
    <>
      <blockquote class="asked">
        <Revealing
          text={typeof question === "string" ? question : JSON.stringify(question ?? null)}
        />
      </blockquote>
      <Arguments input={JSON.stringify(call ?? {})} />
    </>
  );
}

interface RejectingProps {
  isBusy: boolean;
  onReject: (message: string) => void;
  onCancel: () => void;
}

function Rejecting({ isBusy, onReject, onCancel }: RejectingProps) {
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
        Why? The agent is told.
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
