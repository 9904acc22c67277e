/** Whether the browser notifies the user of calls that wait. */
import * as notifications from "../inbox/notifications";
import { t } from "../text/language";

export function NotificationSetting() {
  const state = notifications.state.value;
  if (state === "on")
    return <p class="muted">{t("You are notified when a call waits for you.")}</p>;
  if (state === "off") {
    return (
      <p>
        <button type="button" onClick={() => void notifications.ask()}>
          {t("Notify me when a call waits")}
        </button>
      </p>
    );
  }
  if (state === "blocked")
    return <p class="muted">{t("This browser blocks notifications of this page.")}</p>;
  return null;
}
