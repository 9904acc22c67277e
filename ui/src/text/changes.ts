/** The difference of two texts, line by line; loaded when the first one shows. */
import { diffLines } from "diff";

export interface Line {
  kind: "same" | "added" | "removed";
  text: string;
}

const PATIENCE_MS = 500;

/** Nothing if it would take too long to find out. */
export function changes(before: string, after: string): Line[] | null {
  const parts = diffLines(before, after, { timeout: PATIENCE_MS });
  if (!parts) return null;
  return parts.flatMap((part) => {
    const kind = part.added ? "added" : part.removed ? "removed" : "same";
    const lines = part.value.replace(/\n$/, "").split("\n");
    return lines.map((text): Line => ({ kind, text }));
  });
}
