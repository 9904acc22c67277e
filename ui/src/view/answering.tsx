/** Decisions that are more than a yes or no: what happened, what is the answer. */
import { useState } from "preact/hooks";

import { hasToken, needsToken } from "../api/request";
import type { Asking } from "../chat/run";
import type { Decision } from "../inbox/inbox";
import { ArgumentForm } from "./argumentform";

interface AnsweringProps {
  asking: Asking;
  isBusy: boolean;
  onDecide: (decision: Decision) => Promise<void>;
}

const CHOICES = {
  done: "It was done",
  retry: "Run it again",
  give_up: "Give up on it",
} as const;

type Choice = keyof typeof CHOICES;

export function Answering(props: AnsweringProps) {
  switch (props.asking.kind) {
    case "outcome_unknown":
      return <Outcome {...props} />;
    case "question":
      return <Question {...props} />;
    case "auth":
      return <Authority {...props} />;
    case "tool":
      return <Decline {...props} />;
  }
}

function Outcome({ asking, isBusy, onDecide }: AnsweringProps) {
  const choices = (asking.choices ?? Object.keys(CHOICES)) as Choice[];
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

function Authority(props: AnsweringProps) {
  return (
    <>
      <p>
        It uses the credentials of the person it acts for, and those are never stored: none are at
        hand now. <strong>Continue</strong> lets it run with yours, which are sent along with this
        decision. <strong>Decline</strong>, and it does not run; the agent is told.
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
        {!hasToken() && (
          <button type="button" class="quiet" onClick={() => (needsToken.value = true)}>
            Sign in…
          </button>
        )}
      </div>
    </>
  );
}

function Question(props: AnsweringProps) {
  const { asking, isBusy, onDecide } = props;
  const answer = (value: unknown): void => void onDecide({ approved: true, answer: asAny(value) });
  if (asking.choices?.length) {
    return (
      <div class="actions">
        {asking.choices.map((choice) => (
          <button key={choice} disabled={isBusy} onClick={() => answer(choice)}>
            {choice}
          </button>
        ))}
        <Decline {...props} />
      </div>
    );
  }
  if (asking.schema?.["properties"]) {
    return (
      <ArgumentForm
        input="{}"
        parameters={asking.schema}
        isBusy={isBusy}
        words={{ send: "Answer", leave: "Decline" }}
        onApprove={answer}
        onCancel={() => void onDecide({ approved: false })}
      />
    );
  }
  return <TextAnswer {...props} onAnswer={answer} />;
}

function TextAnswer(props: AnsweringProps & { onAnswer: (answer: string) => void }) {
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

function Decline({ isBusy, onDecide }: AnsweringProps) {
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

/** The wire takes any value here; its type says "object" because JSON Schema has no "any". */
const asAny = (value: unknown): Record<string, unknown> => value as Record<string, unknown>;
