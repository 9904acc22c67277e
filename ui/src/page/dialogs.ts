/** Which dialog is open. */
import { signal } from "@preact/signals";

export const isHelpOpen = signal(false);
export const isInboxOpen = signal(false);
export const isShareOpen = signal(false);
export const isTagsOpen = signal(false);
/** The part of the settings that is shown. */
export const shownSettings = signal<"you" | "usage" | "allowed" | "keyboard" | null>(null);
/** The run that is compared with its other versions. */
export const comparedRun = signal<string | null>(null);
/** The run whose timeline is shown. */
export const shownTimeline = signal<string | null>(null);

/** The run that is replayed. */
export const replayedRun = signal<string | null>(null);

export function closeDialogs(): void {
  isHelpOpen.value = isInboxOpen.value = isShareOpen.value = isTagsOpen.value = false;
  shownSettings.value = shownTimeline.value = comparedRun.value = replayedRun.value = null;
}
