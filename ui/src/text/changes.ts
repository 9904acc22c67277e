/** The difference of two texts, line by line; loaded when the first one shows. */
import { diffLines } from "diff";

export interface Line {
  kind: "same" | "added" | "removed";
  text: string;
}

const TIMEOUT_MS = 500;

/** Null if the comparison takes too long. */
export function changes(before: string, after: string): Line[] | null {
  const parts = diffLines(before, after, { timeout: TIMEOUT_MS });
  if (!parts) return null;
  return parts.flatMap((part) => {
    const kind = part.added ? "added" : part.removed ? "removed" : "same";
    const lines = part.value.replace(/\n$/, "").split("\n");
    return lines.map((text): Line => ({ kind, text }));
  });
}
