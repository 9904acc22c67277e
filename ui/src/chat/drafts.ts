/** Messages that are not sent yet, kept in the browser until they have arrived. */
import { randomId } from "../api/request";
import type { Item } from "../api/schema";
import { forGood } from "../page/storage";

export interface Draft {
  text: string;
  items: Item[];
  /** Sent with the message: the server takes a draft with this key only once. */
  key: string;
}

const PREFIX = "teal.draft.";
const MAX_STORED = 2_000_000;

export const emptyDraft = (): Draft => ({ text: "", items: [], key: randomId() });

export function loadDraft(chat: string): Draft {
  try {
    const stored = forGood.get(PREFIX + chat);
    const known = stored ? (JSON.parse(stored) as Partial<Draft>) : {};
    return { ...emptyDraft(), ...known };
  } catch {
    return emptyDraft();
  }
}

export function keepDraft(chat: string, draft: Draft): void {
  if (!draft.text && draft.items.length === 0) {
    forGood.remove(PREFIX + chat);
    return;
  }
  // Files can be larger than what a browser stores, and this runs with every key.
  const size = draft.items.reduce((sum, item) => sum + item.content.length, 0);
  const kept = size > MAX_STORED ? { ...draft, items: [] } : draft;
  forGood.set(PREFIX + chat, JSON.stringify(kept));
}
