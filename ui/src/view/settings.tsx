/** The person's own window: who they are, how the page looks, what they used and allowed. */
import { me, signOut } from "../account/account";
import { shownSettings } from "../page/dialogs";
import {
  chooseLanguage,
  density,
  languageChoice,
  theme,
  type Density,
  type LanguageChoice,
  type Theme,
} from "../page/preferences";
import { LANGUAGES, t } from "../text/language";
import { Dialog } from "./dialog";
import { Grants } from "./grants";
import { NotificationSetting } from "./notificationsetting";
import { ShortcutTable } from "./shortcuts";
import { Usage } from "./usage";
import { VisibleText } from "./visibletext";

const PARTS = ["you", "usage", "allowed", "keyboard"] as const;

type Part = (typeof PARTS)[number];

const nameOf = (part: Part): string =>
  ({
    you: t("You"),
    usage: t("Usage"),
    allowed: t("Allowed tools"),
    keyboard: t("Keyboard"),
  })[part];

export function Settings() {
  const part = shownSettings.value;
  if (part === null) return null;
  return (
    <Dialog title={t("Settings")} class="wide" onClose={() => (shownSettings.value = null)}>
      <div class="choices" role="group" aria-label={t("Part of the settings")}>
        {PARTS.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={name === part}
            onClick={() => (shownSettings.value = name)}
          >
            {nameOf(name)}
          </button>
        ))}
      </div>
      <section aria-label={nameOf(part)} class="settings-part">
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
          <dt>{t("Signed in as")}</dt>
          <dd>
            <VisibleText text={user.name ?? user.id} />
          </dd>
          <dt>{t("Id")}</dt>
          <dd>
            <code>{user.id}</code>
          </dd>
          {user.tenant && (
            <>
              <dt>{t("Organisation")}</dt>
              <dd>{user.tenant}</dd>
            </>
          )}
          <dt>{t("Roles")}</dt>
          <dd>{user.roles.join(", ") || t("none")}</dd>
        </dl>
      ) : (
        <p class="muted">
          {t("This server asks nobody to sign in: everything here is one person’s.")}
        </p>
      )}
      <Choice<Theme>
        label={t("Theme")}
        value={theme.value}
        choices={{ system: t("As the system"), light: t("Light"), dark: t("Dark") }}
        onChoose={(value) => (theme.value = value)}
      />
      <Choice<Density>
        label={t("Spacing")}
        value={density.value}
        choices={{ comfortable: t("Comfortable"), compact: t("Compact") }}
        onChoose={(value) => (density.value = value)}
      />
      <Choice<LanguageChoice>
        label={t("Language")}
        value={languageChoice.value}
        choices={{ system: t("As the browser"), ...LANGUAGES }}
        onChoose={(value) => void chooseLanguage(value)}
      />
      <NotificationSetting />
      {user && (
        <div class="actions">
          <button type="button" onClick={() => void signOut()}>
            {t("Sign out")}
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
