/** How this browser shows the page: theme, density, language. Kept in the browser, not on the server. */
import { effect, signal } from "@preact/signals";

import { language, LANGUAGES, preferredLanguage, speak, t, type Language } from "../text/language";
import { notice } from "./notice";
import { forGood } from "./storage";

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
    forGood.set(THEME, theme.value);
    forGood.set(DENSITY, density.value);
  });
  window.addEventListener("languagechange", () => void applyLanguage());
  await applyLanguage();
}

export function chooseLanguage(choice: LanguageChoice): Promise<void> {
  languageChoice.value = choice;
  forGood.set(LANGUAGE, choice);
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
  const known = forGood.get(name) as Choice;
  return choices.includes(known) ? known : choices[0];
}
