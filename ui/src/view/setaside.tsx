/** Instead of the message field of a chat that is in the bin. */
import type { OpenChat } from "../page/openchat";
import { move, removeForGood } from "../page/places";
import { t } from "../text/language";
import { Icon } from "./icon";

export function SetAside({ openChat }: { openChat: OpenChat }) {
  const { id, title } = openChat.session;
  const remove = (): void => {
    if (window.confirm(t("Remove this chat for good? This cannot be undone."))) {
      void removeForGood(id);
    }
  };
  return (
    <div class="set-aside">
      <span>{t("This chat is in the bin. It stays there until you remove it.")}</span>
      <button
        type="button"
        class="primary"
        onClick={() => void move(id, title.peek(), "list", "bin")}
      >
        {t("Restore")}
      </button>
      <button type="button" class="danger" onClick={remove}>
        <Icon name="trash" /> {t("Delete permanently")}
      </button>
    </div>
  );
}
