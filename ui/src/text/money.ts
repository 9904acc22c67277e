/** Amounts of money, also those of a few tokens. */
import type { CostView } from "../api/schema";

/** So many digits say something about an amount below one. */
const TELLING = 3;

export function money({ amount, currency }: CostView): string {
  const isSmall = amount > 0 && amount < 1;
  const digits = Math.min(12, TELLING - 1 - Math.floor(Math.log10(amount)));
  const small = { minimumFractionDigits: 2, maximumFractionDigits: digits };
  const style = { style: "currency", currency, ...(isSmall ? small : {}) } as const;
  return new Intl.NumberFormat(undefined, style).format(amount);
}
