/** Rows of a usage report, added up. Pure functions. */
import type { CostView, UsageRow } from "../api/schema";

export interface DayUsage {
  day: string;
  tokens: number;
}

export interface ModelUsage {
  agent: string;
  model: string;
  calls: number;
  read: number;
  written: number;
  cost: CostView[];
}

const DAY = 86_400_000;

/** Every day from `since` to today, also those on which nothing was used. */
export function byDay(rows: UsageRow[], since: string, now = Date.now()): DayUsage[] {
  const sums = new Map<string, number>();
  for (const row of rows) {
    const tokens = row.prompt_tokens + row.completion_tokens;
    sums.set(row.day, (sums.get(row.day) ?? 0) + tokens);
  }
  const days: DayUsage[] = [];
  for (let at = Date.parse(since); at <= now; at += DAY) {
    const day = new Date(at).toISOString().slice(0, 10);
    days.push({ day, tokens: sums.get(day) ?? 0 });
  }
  return days;
}

/** What was used of each model with each agent, the most first. */
export function byModel(rows: UsageRow[]): ModelUsage[] {
  const found = new Map<string, ModelUsage>();
  for (const row of rows) {
    const key = JSON.stringify([row.agent, row.model]);
    const known = found.get(key) ?? {
      agent: row.agent,
      model: row.model,
      calls: 0,
      read: 0,
      written: 0,
      cost: [],
    };
    found.set(key, {
      ...known,
      calls: known.calls + row.calls,
      read: known.read + row.prompt_tokens,
      written: known.written + row.completion_tokens,
      cost: added(known.cost, row.cost),
    });
  }
  return [...found.values()].sort((a, b) => b.read + b.written - a.read - a.written);
}

/** Amounts of different currencies stay apart. */
function added(sum: CostView[], more: readonly CostView[]): CostView[] {
  const amounts = new Map(sum.map(({ currency, amount }) => [currency, amount]));
  for (const { currency, amount } of more) {
    amounts.set(currency, (amounts.get(currency) ?? 0) + amount);
  }
  return [...amounts].map(([currency, amount]) => ({ currency, amount }));
}
