/** How this browser shows the page: theme, density, language. Kept in the browser, not on the server. */
import { effect, signal } from "@preact/signals";

import { language, LANGUAGES, preferredLanguage, speak, t, type Language } from "../text/language";
import { notice } from "./notice";

export type Theme = "system" | "light" | "dark";
export type Density = "comfortable" | "compact";
export type LanguageChoice = "system" | Language;

const THEME = "teal-look.theme";
const DENSITY = "teal-look.density";
const LANGUAGE = "teal-look.language";

export const theme = signal<Theme>(stored(THEME, ["system", "light", "dark"]));
export const density = signal<Density>(stored(DENSITY, ["comfortable", "compact"]));
export const languageChoice = signal<LanguageChoice>(
  stored(LANGUAGE, ["system", ...(Object.keys(LANGUAGES) as Language[])]),
);

/** Done when the page can be shown: its words are there. */
export async function applyPreferences(): Promise<void> {
  effect(() => {
    const root = document.documentElement;
    root.dataset["theme"] = theme.value;
    root.dataset["density"] = density.value;
    root.lang = language.value;
    keep(THEME, theme.value);
    keep(DENSITY, density.value);
  });
  window.addEventListener("languagechange", () => void applyLanguage());
  await applyLanguage();
}

export function chooseLanguage(choice: LanguageChoice): Promise<void> {
  languageChoice.value = choice;
  keep(LANGUAGE, choice);
  return applyLanguage();
}

async function applyLanguage(): Promise<void> {
  const choice = languageChoice.peek();
  try {
    await speak(choice === "system" ? preferredLanguage() : choice);
  } catch {
    notice.value = t("The texts of this language could not be loaded.");
  }
}

/** The first of the choices unless another one was kept. */
function stored<Choice extends string>(name: string, choices: [Choice, ...Choice[]]): Choice {
  try {
    const known = localStorage.getItem(name) as Choice;
    return choices.includes(known) ? known : choices[0];
  } catch {
    return choices[0];
  }
}

function keep(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // A private window may store nothing.
  }
}
