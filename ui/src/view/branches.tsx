/** The versions of a message: which one is shown, and buttons for the others. */
import { chooseBranch } from "../api/endpoints";
import type { ChatSession } from "../chat/session";
import { comparedRun } from "../page/dialogs";
import { complain } from "../page/notice";
import { t } from "../text/language";
import { IconButton } from "./icon";

export async function switchBranch(session: ChatSession, run: string, step: -1 | 1): Promise<void> {
  const all = session.siblings(run);
  const target = all[all.indexOf(run) + step];
  if (target === undefined) return;
  try {
    await chooseBranch(session.id, target);
  } catch (error) {
    complain(error);
  }
}

export function Branches({ session, run }: { session: ChatSession; run: string }) {
  const all = session.siblings(run);
  if (all.length < 2) return null;
  const at = all.indexOf(run);
  const isBusy = session.activeId.value !== null;
  return (
    <span class="branches" role="group" aria-label={t("Versions of this message")}>
      <IconButton
        icon="left"
        label={t("Previous version")}
        disabled={at === 0 || isBusy}
        onClick={() => void switchBranch(session, run, -1)}
      />
      <span>
        {at + 1}/{all.length}
      </span>
      <IconButton
        icon="right"
        label={t("Next version")}
        disabled={at === all.length - 1 || isBusy}
        onClick={() => void switchBranch(session, run, 1)}
      />
      <IconButton
        icon="compare"
        label={t("Compare versions")}
        onClick={() => (comparedRun.value = run)}
      />
    </span>
  );
}
