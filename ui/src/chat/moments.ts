/** The bars of a run's timeline, made from its moments. */
import type { CostView, UsageView } from "../api/schema";
import type { Moment, Run } from "./run";

export interface Bar {
  /** Bars of one thing are in one row: the waiting and the running of a call. */
  row: string;
  /** The name of the tool; null for the model and the queue. */
  lane: string | null;
  kind: "model" | "tool" | "human" | "queue";
  from: number;
  to: number;
  /** It has not ended yet. */
  isOpen: boolean;
  /** What it took; absent where that is not known. */
  usage?: UsageView;
  cost?: CostView;
}

/** How long a call ran; null if that is not known here. */
export function callTime(run: Run, call: string): number | null {
  const began = run.moments.findLast((entry) => entry.what === "called" && entry.call === call);
  const ended = run.moments.findLast((entry) => entry.what === "returned" && entry.call === call);
  if (!began || !ended) return null;
  const took = ended.at - began.at;
  return Number.isFinite(took) ? Math.max(0, took) : null;
}

/** How long a run took; null if that is not known here. */
export function runTime(run: Run): number | null {
  const began = run.moments.find((entry) => entry.what === "started");
  const ended = run.moments.find((entry) => entry.what === "ended");
  const took = began && ended ? ended.at - began.at : Number.NaN;
  return Number.isFinite(took) ? Math.max(0, took) : null;
}

export const areDated = (moments: readonly Moment[]): boolean =>
  moments.length > 0 && moments.every((entry) => Number.isFinite(entry.at));

/** The bars of a timeline; `now` ends those that are still open. */
export function bars(moments: readonly Moment[], now: number): Bar[] {
  const found: Bar[] = [];
  const open = new Map<string, Bar>();
  let round: Bar | null = null;
  const begin = (key: string, lane: string | null, kind: Bar["kind"], at: number): void => {
    if (open.has(key)) return;
    const bar: Bar = { row: key.split(" ")[1] ?? key, lane, kind, from: at, to: at, isOpen: true };
    open.set(key, bar);
    found.push(bar);
    if (kind === "model") round = bar;
  };
  const end = (key: string, at: number): void => {
    const bar = open.get(key);
    if (!bar) return;
    bar.to = Math.max(bar.from, at);
    bar.isOpen = false;
    open.delete(key);
  };
  for (const entry of moments) {
    const call = entry.call ?? "";
    // What a round took is known with what it led to; what a tool took, with its result.
    const spender = entry.what === "returned" ? open.get(`tool ${call}`) : round;
    if (spender && entry.usage) Object.assign(spender, { usage: entry.usage, cost: entry.cost });
    const tool = entry.tool ?? "tool";
    if (entry.what === "queued") begin("queue", null, "queue", entry.at);
    if (entry.what === "started") end("queue", entry.at);
    if (["model", "asked", "called", "ended"].includes(entry.what)) end("model", entry.at);
    if (entry.what === "asked") begin(`human ${call}`, tool, "human", entry.at);
    if (["approved", "refused", "called"].includes(entry.what)) end(`human ${call}`, entry.at);
    if (entry.what === "called") begin(`tool ${call}`, tool, "tool", entry.at);
    if (entry.what === "returned") end(`tool ${call}`, entry.at);
    if (entry.what === "ended") [...open.keys()].forEach((key) => end(key, entry.at));
    const isIdle = ![...open.keys()].some((key) => key !== "model" && key !== "queue");
    if (["started", "returned", "refused"].includes(entry.what) && isIdle) {
      begin("model", null, "model", entry.at);
    }
  }
  for (const bar of open.values()) bar.to = Math.max(bar.from, now);
  return found;
}

/** The bars of each thing together, in the order in which the things began. */
export function inRows(all: Bar[]): Bar[][] {
  const rows = new Map<string, Bar[]>();
  for (const bar of all) rows.set(bar.row, [...(rows.get(bar.row) ?? []), bar]);
  return [...rows.values()];
}
