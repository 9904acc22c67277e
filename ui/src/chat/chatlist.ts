/** The list of the user's chats, refreshed regularly. */
import { signal } from "@preact/signals";

import * as server from "../api/endpoints";
import type { Place } from "../api/endpoints";
import { errorText } from "../api/request";
import type { ChatSummary } from "../api/schema";

export const chats = signal<ChatSummary[]>([]);
export const pinned = signal<ChatSummary[]>([]);
export const query = signal("");
/** Which chats are listed. */
export const place = signal<Place>("list");
export const hasMore = signal(false);
export const isLoaded = signal(false);
export const problem = signal("");

const REFRESH_MS = 15_000;
const TYPING_MS = 180;

let next: string | null = null;
let current = new AbortController();
let typing = 0;

export async function refresh(): Promise<void> {
  current.abort();
  const mine = (current = new AbortController());
  const asked = { query: query.peek(), place: place.peek() };
  try {
    const isPlain = asked.place === "list" && !asked.query;
    const [page, pins] = await Promise.all([
      server.chats(asked, mine.signal),
      isPlain ? server.chats({ place: "list", pinned: true }, mine.signal) : { chats: [] },
    ]);
    chats.value = page.chats;
    pinned.value = pins.chats;
    next = page.next;
    hasMore.value = next !== null;
    isLoaded.value = true;
    problem.value = "";
  } catch (error) {
    if (!mine.signal.aborted) problem.value = errorText(error);
  }
}

export async function loadMore(): Promise<void> {
  if (next === null) return;
  const asked = current;
  try {
    const page = await server.chats({ query: query.peek(), place: place.peek(), cursor: next });
    // The list has changed in the meantime: this is not a part of it.
    if (asked !== current) return;
    const known = new Set(chats.peek().map((chat) => chat.id));
    chats.value = [...chats.peek(), ...page.chats.filter((chat) => !known.has(chat.id))];
    next = page.next;
    hasMore.value = next !== null;
  } catch (error) {
    problem.value = errorText(error);
  }
}

export function search(text: string): void {
  query.value = text;
  window.clearTimeout(typing);
  typing = window.setTimeout(() => void refresh(), TYPING_MS);
}

export function showPlace(which: Place): void {
  place.value = which;
  chats.value = [];
  pinned.value = [];
  isLoaded.value = false;
  void refresh();
}

export function keepRefreshing(): void {
  void refresh();
  window.setInterval(() => {
    // A refresh would remove the older chats that the user has loaded.
    if (!document.hidden && chats.peek().length <= 50) void refresh();
  }, REFRESH_MS);
}
