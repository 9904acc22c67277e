/** Decisions other than approve or reject: an outcome, an answer, the use of a token. */
import { useState } from "preact/hooks";

import { needsSignIn, pasted } from "../account/credentials";
import { me } from "../account/account";
import type { ApprovalRequest } from "../chat/run";
import type { Decision } from "../inbox/inbox";
import { ArgumentForm } from "./argumentform";

interface DecisionFormProps {
  approval: ApprovalRequest;
  isBusy: boolean;
  onDecide: (decision: Decision) => Promise<void>;
}

const CHOICES = {
  done: "It was done",
  retry: "Run it again",
  give_up: "Give up on it",
} as const;

type Choice = keyof typeof CHOICES;

export function DecisionForm(props: DecisionFormProps) {
  switch (props.approval.kind) {
    case "outcome_unknown":
      return <Outcome {...props} />;
    case "question":
      return <Question {...props} />;
    case "auth":
      return <TokenUse {...props} />;
    case "tool":
      return <Decline {...props} />;
  }
}

function Outcome({ approval, isBusy, onDecide }: DecisionFormProps) {
  const choices = (approval.choices ?? Object.keys(CHOICES)) as Choice[];
  return (
    <div class="actions">
      {choices.map((choice) => (
        <button
          key={choice}
          disabled={isBusy}
          onClick={() => void onDecide({ approved: true, choice })}
        >
          {CHOICES[choice]}
        </button>
      ))}
    </div>
  );
}

function TokenUse(props: DecisionFormProps) {
  return (
    <>
      <p>
        It uses your credentials. The server never stores them, so it does not have them now.{" "}
        <strong>Continue</strong> sends them with this decision and runs the call.{" "}
        <strong>Decline</strong> does not run it; the agent is informed.
      </p>
      <div class="actions">
        <button
          type="button"
          class="primary"
          disabled={props.isBusy}
          onClick={() => void props.onDecide({ approved: true })}
        >
          Continue
        </button>
        <Decline {...props} />
        {!me.value && !pasted.isKnown() && (
          <button type="button" class="quiet" onClick={() => (needsSignIn.value = "")}>
            Sign in…
          </button>
        )}
      </div>
    </>
  );
}

function Question(props: DecisionFormProps) {
  const { approval, isBusy, onDecide } = props;
  const answer = (value: unknown): void => void onDecide({ approved: true, answer: asAny(value) });
  if (approval.choices?.length) {
    return (
      <div class="actions">
        {approval.choices.map((choice) => (
          <button key={choice} disabled={isBusy} onClick={() => answer(choice)}>
            {choice}
          </button>
        ))}
        <Decline {...props} />
      </div>
    );
  }
  if (approval.schema?.["properties"]) {
    return (
      <ArgumentForm
        input="{}"
        parameters={approval.schema}
        isBusy={isBusy}
        words={{ send: "Answer", leave: "Decline" }}
        onApprove={answer}
        onCancel={() => void onDecide({ approved: false })}
      />
    );
  }
  return <TextAnswer {...props} onAnswer={answer} />;
}

function TextAnswer(props: DecisionFormProps & { onAnswer: (answer: string) => void }) {
  const [text, setText] = useState("");
  return (
    <form
      aria-label="Answer"
      onSubmit={(event) => {
        event.preventDefault();
        props.onAnswer(text);
      }}
    >
      <label>
        Your answer
        <textarea rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <div class="actions">
        <button class="primary" disabled={props.isBusy || !text.trim()}>
          Answer
        </button>
        <Decline {...props} />
      </div>
    </form>
  );
}

function Decline({ isBusy, onDecide }: DecisionFormProps) {
  return (
    <button
      type="button"
      class="quiet"
      disabled={isBusy}
      onClick={() => void onDecide({ approved: false })}
    >
      Decline
    </button>
  );
}

/** The server takes any value here; its type says "object" because JSON Schema has no "any". */
const asAny = (value: unknown): Record<string, unknown> => value as Record<string, unknown>;
