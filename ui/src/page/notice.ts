/** A sentence for the user about something that did not work. */
import { signal } from "@preact/signals";

export const notice = signal("");
