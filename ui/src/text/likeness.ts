/** How a call differs from earlier calls of the same tool. Pure functions. */
import { parsedObject } from "./json";

export interface EarlierCall {
  input: string;
  approved: boolean;
  /** When it was called or refused. */
  at: string;
}

export interface Likeness {
  earlier: EarlierCall;
  /** The arguments that differ, by name, as they were and as they are. */
  changed: { name: string; before: unknown; now: unknown }[];
}

/** The earlier call that has most in common with this one, the newest of those; null if none has. */
export function likest(input: string, earlier: readonly EarlierCall[]): Likeness | null {
  const now = parsedObject(input);
  if (!now) return null;
  let best: Likeness | null = null;
  for (const call of earlier) {
    const before = parsedObject(call.input);
    if (!before) continue;
    const names = [...new Set([...Object.keys(before), ...Object.keys(now)])];
    const changed = names
      .filter((name) => JSON.stringify(before[name]) !== JSON.stringify(now[name]))
      .map((name) => ({ name, before: before[name], now: now[name] }));
    // A call that shares nothing says nothing.
    if (changed.length === names.length && names.length > 0) continue;
    if (!best || changed.length <= best.changed.length) best = { earlier: call, changed };
  }
  return best;
}
