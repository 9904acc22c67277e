/** What the user said while the agent worked, with its receipt. */
import { isOver, type Run, type SteeredStep } from "../chat/run";
import { refill } from "../page/refill";
import { Icon } from "./icon";
import { MessageText } from "./message";

export function Steering({ run, step }: { run: Run; step: SteeredStep }) {
  const state = stateOf(run, step);
  return (
    <div class="steering" data-state={state} role="group" aria-label="Said meanwhile">
      <MessageText text={step.text} items={[]} />
      <p class="receipt muted" role="status">
        <Icon name={state === "delivered" ? "check" : state === "waiting" ? "clock" : "cross"} />
        {RECEIPTS[state]}
        {state === "lost" && (
          <button type="button" class="quiet" onClick={() => (refill.value = step.text)}>
            Write it as a new message
          </button>
        )}
      </p>
    </div>
  );
}

const RECEIPTS = {
  delivered: "Delivered to the agent",
  waiting: "Waiting for the agent's next step",
  lost: "Not delivered: the answer ended before",
};

function stateOf(run: Run, step: SteeredStep): keyof typeof RECEIPTS {
  if (step.isDelivered) return "delivered";
  return isOver(run) ? "lost" : "waiting";
}
