/** A text that comes back into the message field. */
import { signal } from "@preact/signals";

export const refill = signal<string | null>(null);
