/** The person's own window: who they are, how the page looks, what they used and allowed. */
import { me, signOut } from "../account/account";
import { shownSettings } from "../page/dialogs";
import { density, theme, type Density, type Theme } from "../page/preferences";
import { Dialog } from "./dialog";
import { Grants } from "./grants";
import { NotificationSetting } from "./notificationsetting";
import { ShortcutTable } from "./shortcuts";
import { Usage } from "./usage";
import { VisibleText } from "./visibletext";

const PARTS = {
  you: "You",
  usage: "Usage",
  allowed: "Allowed tools",
  keyboard: "Keyboard",
} as const;

type Part = keyof typeof PARTS;

export function Settings() {
  const part = shownSettings.value;
  if (part === null) return null;
  return (
    <Dialog title="Settings" class="wide" onClose={() => (shownSettings.value = null)}>
      <div class="choices" role="group" aria-label="Part of the settings">
        {(Object.keys(PARTS) as Part[]).map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={name === part}
            onClick={() => (shownSettings.value = name)}
          >
            {PARTS[name]}
          </button>
        ))}
      </div>
      <section aria-label={PARTS[part]} class="settings-part">
        {part === "you" && <You />}
        {part === "usage" && <Usage />}
        {part === "allowed" && <Grants />}
        {part === "keyboard" && <ShortcutTable />}
      </section>
    </Dialog>
  );
}

function You() {
  const user = me.value;
  return (
    <>
      {user ? (
        <dl class="facts-list">
          <dt>Signed in as</dt>
          <dd>
            <VisibleText text={user.name ?? user.id} />
          </dd>
          <dt>Id</dt>
          <dd>
            <code>{user.id}</code>
          </dd>
          {user.tenant && (
            <>
              <dt>Organisation</dt>
              <dd>{user.tenant}</dd>
            </>
          )}
          <dt>Roles</dt>
          <dd>{user.roles.join(", ") || "none"}</dd>
        </dl>
      ) : (
        <p class="muted">This server asks nobody to sign in: everything here is one person’s.</p>
      )}
      <Choice<Theme>
        label="Theme"
        value={theme.value}
        choices={{ system: "As the system", light: "Light", dark: "Dark" }}
        onChoose={(value) => (theme.value = value)}
      />
      <Choice<Density>
        label="Spacing"
        value={density.value}
        choices={{ comfortable: "Comfortable", compact: "Compact" }}
        onChoose={(value) => (density.value = value)}
      />
      <NotificationSetting />
      {user && (
        <div class="actions">
          <button type="button" onClick={() => void signOut()}>
            Sign out
          </button>
        </div>
      )}
    </>
  );
}

interface ChoiceProps<Value extends string> {
  label: string;
  value: Value;
  choices: Record<Value, string>;
  onChoose: (value: Value) => void;
}

function Choice<Value extends string>({ label, value, choices, onChoose }: ChoiceProps<Value>) {
  return (
    <div class="setting">
      <span>{label}</span>
      <div class="choices" role="group" aria-label={label}>
        {(Object.keys(choices) as Value[]).map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={name === value}
            onClick={() => onChoose(name)}
          >
            {choices[name]}
          </button>
        ))}
      </div>
    </div>
  );
}
