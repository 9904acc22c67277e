/** What a screen reader is told: the turns of a conversation, not each of its words. */
import { effect, signal } from "@preact/signals";

import { isOver } from "../chat/run";
import { room } from "./room";

export const announcement = signal("");

export function announce(words: string): void {
  announcement.value = words;
}

export function keepAnnouncing(): void {
  let running: string | null = null;
  let asked = 0;
  effect(() => {
    const { session } = room.value;
    const active = session.activeId.value;
    const waiting = session.pendingCount.value;
    if (active && active !== running) announce("The agent is working.");
    else if (waiting > asked) announce(waitingWords(waiting));
    else if (!active && running !== null) {
      const last = session.get(running);
      if (last && isOver(last)) announce(`The answer is ${last.status.toLowerCase()}.`);
    }
    running = active;
    asked = waiting;
  });
}

const waitingWords = (count: number): string =>
  count === 1 ? "A tool call waits for your approval." : `${count} tool calls wait for approval.`;
