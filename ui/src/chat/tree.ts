/** A chat's runs as a tree, of which one path is shown. */
import type { Run } from "./run";

export interface Runs {
  get(id: string): Run | undefined;
  all(): Iterable<Run>;
}

/** From the first run to `head`, as far as it is known here. */
export function pathTo(runs: Runs, head: string | null): string[] {
  const found: string[] = [];
  const seen = new Set<string>();
  for (let id = head; id !== null && !seen.has(id);) {
    const run = runs.get(id);
    if (!run) break;
    seen.add(id);
    found.push(id);
    id = run.parent;
  }
  return found.reverse();
}

/** The versions of each message, by their parent, oldest first. */
export function versions(runs: Runs): Map<string | null, string[]> {
  const found = new Map<string | null, string[]>();
  const begun = [...runs.all()].filter((run) => !run.queued && !run.isPlaceholder);
  begun.sort((a, b) => Number(a.createdAt > b.createdAt) - Number(a.createdAt < b.createdAt));
  for (const run of begun) {
    const known = found.get(run.parent);
    if (known) known.push(run.id);
    else found.set(run.parent, [run.id]);
  }
  return found;
}
