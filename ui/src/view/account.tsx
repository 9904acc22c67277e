/** Who is signed in, and the way out. */
import { me, signOut } from "../account/account";
import { Icon } from "./icon";
import { VisibleText } from "./visibletext";

export function Account() {
  const user = me.value;
  if (user === null) return null;
  const roles = user.roles.length > 0 ? `\n${user.roles.join(", ")}` : "";
  return (
    <div class="account" title={`${user.id}${roles}`}>
      <Icon name="person" />
      <span class="account-name">
        <VisibleText text={user.name ?? user.id} />
      </span>
      <button type="button" class="quiet" onClick={() => void signOut()}>
        Sign out
      </button>
    </div>
  );
}
