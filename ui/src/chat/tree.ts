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
  for (let id = head; id !== null && !seen.has(id); ) {
    const run = runs.get(id);
    if (!run) break;
    seen.add(id);
    found.push(id);
    id = run.parent;
  }
  return found.reverse();
}

/** The run and those said in its place, oldest first. */
export function siblings(runs: Runs, id: string): string[] {
  const run = runs.get(id);
  if (!run || run.queued) return [id];
  return [...runs.all()]
    .filter((other) => other.parent === run.parent && !other.queued && !other.isSketch)
    .sort((a, b) => a.createdAt.localeCompare(b.createdAt))
    .map((other) => other.id);
}
