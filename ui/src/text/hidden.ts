/** Characters that cannot be seen, or that change how others are seen, made visible.
 *
 * A user who approves a call must read what will run, not what a clever string looks like.
 */
import { t } from "./language";

export interface Piece {
  text: string;
  /** The code point in words; null for text that is what it looks like. */
  hidden: string | null;
}

// Variation selectors, format and control characters, unassigned and private ones, odd spaces and
// separators, blanks that count as letters, and halves of surrogate pairs.
const HIDDEN =
  /[\ufe00-\ufe0f\u{e0100}-\u{e01ef}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0\u2800]|(?![\n\t])\p{Cc}|(?! )\p{Zs}|\p{Cs}/gu;

const NAMES: Record<number, () => string> = {
  0xa0: () => t("no-break space"),
  0xad: () => t("soft hyphen"),
  0x200b: () => t("zero-width space"),
  0x200c: () => t("zero-width non-joiner"),
  0x200d: () => t("zero-width joiner"),
  0x200e: () => t("left-to-right mark"),
  0x200f: () => t("right-to-left mark"),
  0x202a: () => t("left-to-right embedding"),
  0x202b: () => t("right-to-left embedding"),
  0x202c: () => t("end of direction"),
  0x202d: () => t("left-to-right override"),
  0x202e: () => t("right-to-left override"),
  0x2060: () => t("word joiner"),
  0x2066: () => t("left-to-right isolate"),
  0x2067: () => t("right-to-left isolate"),
  0x2068: () => t("first strong isolate"),
  0x2069: () => t("end of isolate"),
  0xfeff: () => t("byte order mark"),
};

export function revealed(text: string): Piece[] {
  const pieces: Piece[] = [];
  let last = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > last) pieces.push({ text: text.slice(last, match.index), hidden: null });
    pieces.push({ text: match[0], hidden: nameOf(match[0]) });
    last = match.index + match[0].length;
  }
  if (last < text.length) pieces.push({ text: text.slice(last), hidden: null });
  return pieces;
}

export const revealedText = (text: string): string =>
  revealed(text)
    .map((piece) => (piece.hidden ? `[${piece.hidden}]` : piece.text))
    .join("");

function nameOf(char: string): string {
  const point = char.codePointAt(0) ?? 0;
  const code = `U+${point.toString(16).toUpperCase().padStart(4, "0")}`;
  const name = NAMES[point];
  return name ? `${code} ${name()}` : code;
}
