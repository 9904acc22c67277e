/** Which dialog is open. */
import { signal } from "@preact/signals";

export const isHelpOpen = signal(false);
/** The run whose timeline is shown. */
export const shownTimeline = signal<string | null>(null);
