/** A message to the user about something that failed. */
import { effect, signal } from "@preact/signals";

import { errorText, isReachable, Unreachable } from "../api/request";

export const notice = signal("");

let isOutage = false;

export function complain(error: unknown): void {
  isOutage = error instanceof Unreachable;
  notice.value = errorText(error);
}

// What failed for want of a server can be done again: the message would be untrue by now.
effect(() => {
  if (isReachable.value && isOutage) notice.value = "";
});
