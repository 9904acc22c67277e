/** Dates and durations in few words. */
import { computed } from "@preact/signals";

import { locale, numberText, t } from "./language";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const formats = computed(() => {
  const dates = (options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat =>
    new Intl.DateTimeFormat(locale.value, options);
  return {
    clock: dates({ hour: "2-digit", minute: "2-digit" }),
    day: dates({ month: "short", day: "numeric" }),
    month: dates({ month: "long", year: "numeric" }),
    whole: dates({ dateStyle: "medium", timeStyle: "medium" }),
    relative: new Intl.RelativeTimeFormat(locale.value, { numeric: "auto", style: "short" }),
    tenths: new Intl.NumberFormat(locale.value, {
      minimumFractionDigits: 1,
      maximumFractionDigits: 1,
    }),
  };
});

export function ago(when: string, now = Date.now()): string {
  const { relative, clock, day } = formats.value;
  const at = Date.parse(when);
  const past = now - at;
  if (past < MINUTE) return relative.format(0, "second");
  if (past < HOUR) return relative.format(-Math.floor(past / MINUTE), "minute");
  if (past < DAY) return clock.format(at);
  return day.format(at);
}

/** The heading under which something of this date is listed. */
export function dateGroup(when: string, now = new Date()): string {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const at = Date.parse(when);
  if (at >= midnight) return t("Today");
  if (at >= midnight - DAY) return t("Yesterday");
  if (at >= midnight - 7 * DAY) return t("The last 7 days");
  if (at >= midnight - 30 * DAY) return t("The last 30 days");
  return formats.value.month.format(at);
}

export const fullDate = (when: string): string => formats.value.whole.format(Date.parse(when));

/** A day without a time, as the server writes it: `2026-11-16`. */
export const dayText = (day: string): string =>
  new Intl.DateTimeFormat(locale.value, { dateStyle: "medium", timeZone: "UTC" }).format(
    Date.parse(day),
  );

export function until(when: string, now = Date.now()): string {
  const left = Date.parse(when) - now;
  if (left <= 0) return t("expired");
  if (left < HOUR) {
    return t("expires in {minutes} min", { minutes: Math.max(1, Math.floor(left / MINUTE)) });
  }
  if (left < 2 * DAY) return t("expires in {hours} h", { hours: Math.floor(left / HOUR) });
  return t("expires {day}", { day: formats.value.day.format(Date.parse(when)) });
}

/** With the symbols of the units, which are the same in all languages. */
export function duration(milliseconds: number): string {
  if (milliseconds < SECOND) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < MINUTE) return `${formats.value.tenths.format(milliseconds / SECOND)} s`;
  if (milliseconds < HOUR) {
    return `${Math.floor(milliseconds / MINUTE)} min ${Math.round((milliseconds % MINUTE) / SECOND)} s`;
  }
  const hours = numberText(Math.floor(milliseconds / HOUR));
  return `${hours} h ${Math.round((milliseconds % HOUR) / MINUTE)} min`;
}
