/** A message that waits for its turn: it can be taken back, to be changed or dropped. */
import { cancel } from "../api/endpoints";
import type { Run } from "../chat/run";
import { complain } from "../page/notice";
import { refill } from "../page/refill";
import { t } from "../text/language";

export function Queued({ chat, run }: { chat: string; run: Run }) {
  const take = (isEdited: boolean): void => {
    cancel(chat, run.id)
      .then(() => {
        if (isEdited) refill.value = run.message;
      })
      .catch((error: unknown) => complain(error));
  };
  return (
    <p class="actions queued muted">
      {t("Waiting in the queue.")}
      <button type="button" class="quiet" onClick={() => take(true)}>
        {t("Edit it")}
      </button>
      <button type="button" class="quiet" onClick={() => take(false)}>
        {t("Take it back")}
      </button>
    </p>
  );
}
