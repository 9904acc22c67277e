/** Amounts of money, also those of a few tokens. */
import type { CostView } from "../api/schema";
import { locale } from "./language";

/** Digits shown of an amount below one. */
const SIGNIFICANT_DIGITS = 3;

export function money({ amount, currency }: CostView): string {
  const isSmall = amount > 0 && amount < 1;
  const digits = Math.min(12, SIGNIFICANT_DIGITS - 1 - Math.floor(Math.log10(amount)));
  const small = { minimumFractionDigits: 2, maximumFractionDigits: digits };
  const style = { style: "currency", currency, ...(isSmall ? small : {}) } as const;
  return new Intl.NumberFormat(locale.value, style).format(amount);
}
