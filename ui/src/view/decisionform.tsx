/** Decisions other than approve or reject: an outcome, an answer, the use of a token. */
import { useState } from "preact/hooks";

import { needsSignIn, pasted } from "../account/credentials";
import { me } from "../account/account";
import type { ApprovalRequest } from "../chat/run";
import type { Decision } from "../inbox/inbox";
import { phrase, t } from "../text/language";
import { ArgumentForm } from "./argumentform";

interface DecisionFormProps {
  approval: ApprovalRequest;
  isBusy: boolean;
  onDecide: (decision: Decision) => Promise<void>;
}

const CHOICES = ["done", "retry", "give_up"] as const;

type Choice = (typeof CHOICES)[number];

const choiceText = (choice: Choice): string =>
  ({ done: t("It was done"), retry: t("Run it again"), give_up: t("Give up on it") })[choice];

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
  const choices = (approval.choices ?? CHOICES) as Choice[];
  return (
    <div class="actions">
      {choices.map((choice) => (
        <button
          key={choice}
          disabled={isBusy}
          onClick={() => void onDecide({ approved: true, choice })}
        >
          {choiceText(choice)}
        </button>
      ))}
    </div>
  );
}

function TokenUse(props: DecisionFormProps) {
  return (
    <>
      <p>
        {phrase(
          "It uses your credentials. The server never stores them, so it does not have them now. {continue} sends them with this decision and runs the call. {decline} does not run it; the agent is informed.",
          {
            continue: <strong>{t("Continue")}</strong>,
            decline: <strong>{t("Decline")}</strong>,
          },
        )}
      </p>
      <div class="actions">
        <button
          type="button"
          class="primary"
          disabled={props.isBusy}
          onClick={() => void props.onDecide({ approved: true })}
        >
          {t("Continue")}
        </button>
        <Decline {...props} />
        {!me.value && !pasted.isKnown() && (
          <button type="button" class="quiet" onClick={() => (needsSignIn.value = "")}>
            {t("Sign in…")}
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
        words={{ send: t("Answer"), leave: t("Decline") }}
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
      aria-label={t("Answer")}
      onSubmit={(event) => {
        event.preventDefault();
        props.onAnswer(text);
      }}
    >
      <label>
        {t("Your answer")}
        <textarea rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <div class="actions">
        <button class="primary" disabled={props.isBusy || !text.trim()}>
          {t("Answer")}
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
      {t("Decline")}
    </button>
  );
}

/** The server takes any value here; its type says "object" because JSON Schema has no "any". */
const asAny = (value: unknown): Record<string, unknown> => value as Record<string, unknown>;
