/** How this browser shows the page: theme and density. Kept in the browser, not on the server. */
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
export type Density = "comfortable" | "compact";

const THEME = "teal-look.theme";
const DENSITY = "teal-look.density";

export const theme = signal<Theme>(stored(THEME, ["system", "light", "dark"]));
export const density = signal<Density>(stored(DENSITY, ["comfortable", "compact"]));

export function applyPreferences(): void {
  effect(() => {
    const root = document.documentElement;
    root.dataset["theme"] = theme.value;
    root.dataset["density"] = density.value;
    keep(THEME, theme.value);
    keep(DENSITY, density.value);
  });
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
