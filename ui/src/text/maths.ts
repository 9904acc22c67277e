/** Formulas as KaTeX sets them; loaded when the first one shows. */
import katex from "katex";
import "katex/dist/katex.min.css";

import { t } from "./language";

/** Longer ones are shown as they were written. */
const MAX_FORMULA = 10_000;

/** Set the formulas below an element; one that cannot be read stays as it was written. */
export function setFormulas(place: HTMLElement): void {
  for (const source of place.querySelectorAll<HTMLElement>("code.math-source")) {
    const text = source.textContent ?? "";
    if (text.length > MAX_FORMULA) continue;
    const isDisplayed = source.classList.contains("math-display");
    const made = document.createElement("span");
    made.className = isDisplayed ? "math math-display" : "math";
    if (isDisplayed) made.tabIndex = 0;
    try {
      katex.render(text, made, { displayMode: isDisplayed, throwOnError: true, strict: "ignore" });
      source.replaceWith(made);
    } catch {
      source.title = t("This formula cannot be read.");
    }
  }
}
