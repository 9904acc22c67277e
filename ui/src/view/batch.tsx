/** One decision about all calls of a run that wait. */
import { useRef, useState } from "preact/hooks";

import { waitingCalls, type Run } from "../chat/run";
import { decide } from "../inbox/inbox";
import { announce } from "../page/announcer";
import { t } from "../text/language";

/** Only plain calls that this user decides alone: anything else needs an answer of its own. */
const isPlain = (call: ReturnType<typeof waitingCalls>[number]): boolean =>
  call.approval?.kind === "tool" && !call.approval.review && !call.approval.reason_required;

export function BatchDecision({ chat, run }: { chat: string; run: Run }) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const place = useRef<HTMLDivElement>(null);
  const calls = waitingCalls(run).filter(isPlain);
  const hasDecided = run.steps.some((step) => step.kind === "call" && step.verdict?.by === "human");
  if (calls.length < 2) return null;
  const decideAll = async (approved: boolean): Promise<void> => {
    // Before its buttons are disabled and then taken away with the focus.
    place.current?.closest<HTMLElement>(".turn")?.focus({ preventScroll: true });
    setBusy(true);
    setProblem("");
    for (const { approval } of calls) {
      if (!approval) continue;
      const outcome = await decide(chat, run.id, approval, { approved });
      if (!outcome.ok) setProblem(outcome.problem);
    }
    setBusy(false);
    announce(approved ? t("All are approved.") : t("All are rejected."));
  };
  const count = calls.length;
  return (
    <div class="batch" ref={place} role="group" aria-label={t("All calls that wait")}>
      <span>{t("{count} calls wait: those above.", { count })}</span>
      <button class="primary" disabled={isBusy} onClick={() => void decideAll(true)}>
        {hasDecided
          ? t("Approve the other {count}", { count })
          : t("Approve all {count}", { count })}
      </button>
      <button disabled={isBusy} onClick={() => void decideAll(false)}>
        {hasDecided ? t("Reject the other {count}", { count }) : t("Reject all {count}", { count })}
      </button>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}
