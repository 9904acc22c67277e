/** What was just done, with a button that undoes it. */
import { dismissToast, toast } from "../page/toast";
import { t } from "../text/language";
import { IconButton } from "./icon";

export function ToastLine() {
  const shown = toast.value;
  return (
    <div role="status" aria-live="polite">
      {shown && (
        <div class="toast">
          <span>{shown.text}</span>
          {shown.undo && (
            <button
              type="button"
              onClick={() => {
                shown.undo?.();
                dismissToast();
              }}
            >
              {t("Undo")}
            </button>
          )}
          <IconButton icon="cross" label={t("Dismiss")} onClick={dismissToast} />
        </div>
      )}
    </div>
  );
}
