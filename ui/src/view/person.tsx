/** The button at the foot of the list: who uses the page, and the way to their settings. */
import { me } from "../account/account";
import { shownSettings } from "../page/dialogs";
import { t } from "../text/language";
import { Icon } from "./icon";
import { VisibleText } from "./visibletext";

export function PersonButton() {
  const user = me.value;
  return (
    <button
      type="button"
      class="quiet person"
      title={user?.id}
      onClick={() => (shownSettings.value = "you")}
    >
      <Icon name="person" />
      <span class="person-name">
        {user ? <VisibleText text={user.name ?? user.id} /> : t("Settings")}
      </span>
      <Icon name="right" />
    </button>
  );
}
