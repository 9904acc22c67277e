/** A message to the user about something that failed. */
import { signal } from "@preact/signals";

export const notice = signal("");
