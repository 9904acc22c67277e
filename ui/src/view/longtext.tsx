/** Plain text of any length: its beginning, and a button for more. */
import { useState } from "preact/hooks";

import { plural, t } from "../text/language";
import { VisibleText } from "./visibletext";

const FIRST = 4_000;
const STEP = 50_000;

interface LongTextProps {
  text: string;
  /** Show the end instead of the beginning, for a text that still grows. */
  isTail?: boolean;
  label?: string;
}

export function LongText({ text, isTail, label }: LongTextProps) {
  const [shown, setShown] = useState(FIRST);
  const rest = text.length - shown;
  const part = rest <= 0 ? text : isTail ? text.slice(-shown) : text.slice(0, shown);
  return (
    <div class="long-text">
      <pre tabIndex={0} aria-label={label ?? t("Text")}>
        <VisibleText text={part} />
      </pre>
      {rest > 0 && (
        <button type="button" class="quiet" onClick={() => setShown(shown + STEP)}>
          {rest > STEP
            ? t("Show more ({size} left)", { size: size(rest) })
            : t("Show the rest ({size} left)", { size: size(rest) })}
        </button>
      )}
    </div>
  );
}

function size(characters: number): string {
  if (characters < 1_000) return plural(characters, "{count} character", "{count} characters");
  if (characters < 1_000_000) {
    return t("{count} thousand characters", { count: Math.round(characters / 1_000) });
  }
  return t("{count} million characters", { count: Math.round(characters / 100_000) / 10 });
}
