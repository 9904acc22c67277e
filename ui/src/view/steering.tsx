/** What the user said while the agent worked, with its receipt. */
import { isOver, type Run, type SteeredStep } from "../chat/run";
import { refill } from "../page/refill";
import { t } from "../text/language";
import { Icon } from "./icon";
import { MessageText } from "./message";

export function Steering({ run, step }: { run: Run; step: SteeredStep }) {
  const state = stateOf(run, step);
  return (
    <div class="steering" data-state={state} role="group" aria-label={t("Said meanwhile")}>
      <MessageText text={step.text} items={[]} />
      <p class="receipt muted" role="status">
        <Icon name={state === "delivered" ? "check" : state === "waiting" ? "clock" : "cross"} />
        {receiptOf(state)}
        {state === "lost" && (
          <button type="button" class="quiet" onClick={() => (refill.value = step.text)}>
            {t("Write it as a new message")}
          </button>
        )}
      </p>
    </div>
  );
}

type State = "delivered" | "waiting" | "lost";

function receiptOf(state: State): string {
  switch (state) {
    case "delivered":
      return t("Delivered to the agent");
    case "waiting":
      return t("Waiting for the next step of the agent");
    case "lost":
      return t("Not delivered: the answer ended before");
  }
}

function stateOf(run: Run, step: SteeredStep): State {
  if (step.isDelivered) return "delivered";
  return isOver(run) ? "lost" : "waiting";
}
