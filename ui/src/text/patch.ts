/** A unified difference of one file, read line by line.
 *
 * After two lines with names the first character of each line says what the line is. So no text of
 * the file can look like something else.
 */
import type { Line } from "./changes";

export interface PatchLine {
  kind: Line["kind"] | "place" | "note";
  text: string;
  /** Its number in the old file and in the new one. */
  old: number | null;
  next: number | null;
}

export interface Patch {
  file: string;
  lines: PatchLine[];
}

const PLACE = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@$/;

/** Null for any other text. */
export function patchOf(text: string): Patch | null {
  const [old = "", next = "", ...rest] = text.replace(/\n$/, "").split("\n");
  if (!old.startsWith("--- a/") || !next.startsWith("+++ b/")) return null;
  const at = { old: 0, next: 0 };
  return { file: next.slice("+++ b/".length), lines: rest.map((line) => read(line, at)) };
}

function read(line: string, at: { old: number; next: number }): PatchLine {
  const text = line.slice(1);
  switch (line[0]) {
    case "+":
      return { kind: "added", text, old: null, next: at.next++ };
    case "-":
      return { kind: "removed", text, old: at.old++, next: null };
    case " ":
      return { kind: "same", text, old: at.old++, next: at.next++ };
    case "\\":
      return { kind: "note", text: text.trim(), old: null, next: null };
  }
  const place = PLACE.exec(line);
  if (place) Object.assign(at, { old: Number(place[1]), next: Number(place[2]) });
  return { kind: place ? "place" : "note", text: line, old: null, next: null };
}
