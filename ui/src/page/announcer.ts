/** Texts for a screen reader: one for each change of a run, not one for each word. */
import { effect, signal } from "@preact/signals";

import { isOver, statusText } from "../chat/run";
import { plural, t } from "../text/language";
import { openChat } from "./openchat";

export const announcement = signal("");

export function announce(words: string): void {
  announcement.value = words;
}

export function keepAnnouncing(): void {
  let running: string | null = null;
  let asked = 0;
  effect(() => {
    const { session } = openChat.value;
    const active = session.activeId.value;
    const waiting = session.pendingCount.value;
    if (active && active !== running) announce(t("The agent is working."));
    else if (waiting > asked) announce(waitingText(waiting));
    else if (!active && running !== null) {
      const last = session.get(running);
      if (last && isOver(last))
        announce(t("The answer is {status}.", { status: statusText(last) }));
    }
    running = active;
    asked = waiting;
  });
}

const waitingText = (count: number): string =>
  plural(count, "A tool call waits for your approval.", "{count} tool calls wait for approval.");
