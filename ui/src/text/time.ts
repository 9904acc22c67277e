/** Dates and durations in few words. */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function ago(when: string, now = Date.now()): string {
  const at = Date.parse(when);
  const past = now - at;
  if (past < MINUTE) return "now";
  if (past < HOUR) return `${Math.floor(past / MINUTE)} min`;
  if (past < DAY) return clock.format(at);
  return day.format(at);
}

const month = new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric" });

/** The heading under which something of this date is listed. */
export function dateGroup(when: string, now = new Date()): string {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const at = Date.parse(when);
  if (at >= midnight) return "Today";
  if (at >= midnight - DAY) return "Yesterday";
  if (at >= midnight - 7 * DAY) return "The last 7 days";
  if (at >= midnight - 30 * DAY) return "The last 30 days";
  return month.format(at);
}

export const fullDate = (when: string): string => whole.format(Date.parse(when));

export function until(when: string, now = Date.now()): string {
  const left = Date.parse(when) - now;
  if (left <= 0) return "expired";
  if (left < HOUR) return `expires in ${Math.max(1, Math.floor(left / MINUTE))} min`;
  if (left < 2 * DAY) return `expires in ${Math.floor(left / HOUR)} h`;
  return `expires ${day.format(Date.parse(when))}`;
}

export function duration(milliseconds: number): string {
  if (milliseconds < 1_000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < MINUTE) return `${(milliseconds / 1_000).toFixed(1)} s`;
  if (milliseconds < HOUR) {
    return `${Math.floor(milliseconds / MINUTE)} min ${Math.round((milliseconds % MINUTE) / 1_000)} s`;
  }
  return `${Math.floor(milliseconds / HOUR)} h ${Math.round((milliseconds % HOUR) / MINUTE)} min`;
}
