/** One approval that a link names, on its own: for a phone, a mail, a ticket. */
import { useEffect, useState } from "preact/hooks";

import { approval as read } from "../api/endpoints";
import { errorText } from "../api/request";
import type { ApprovalView } from "../api/schema";
import { waiting } from "../inbox/inbox";
import { leaveApproval, linkedApproval } from "../page/openchat";
import { t } from "../text/language";
import { ago } from "../text/time";
import { Dialog } from "./dialog";
import { WaitingCall } from "./inboxdialog";
import { VisibleText } from "./visibletext";

export function ApprovalDialog() {
  const id = linkedApproval.value;
  if (id === null) return null;
  return (
    <Dialog title={t("Approval")} class="wide" onClose={leaveApproval}>
      <Linked key={id} id={id} />
    </Dialog>
  );
}

function Linked({ id }: { id: string }) {
  const [view, setView] = useState<ApprovalView | null>(null);
  const [problem, setProblem] = useState("");
  const isWaiting = waiting.value.some((entry) => entry.approval_id === id);
  useEffect(() => {
    read(id)
      .then(setView)
      .catch((error: unknown) => setProblem(errorText(error)));
  }, [id, isWaiting]);
  if (problem) return <p class="problem">{problem}</p>;
  if (!view) return <p class="muted">{t("Loading…")}</p>;
  if (view.state === "pending") return <WaitingCall entry={view} />;
  return (
    <p>
      <code>{view.tool_name}</code>: {outcomeText(view)}
      {view.decision?.message && (
        <>
          : “<VisibleText text={view.decision.message} />”
        </>
      )}
    </p>
  );
}

function outcomeText({ state, decision }: ApprovalView): string {
  if (!decision) return state;
  const who = decision.decided_by_name ?? decision.decided_by ?? decision.by;
  const when = ago(decision.decided_at);
  return decision.approved
    ? t("approved by {who}, {when}", { who, when })
    : t("rejected by {who}, {when}", { who, when });
}
