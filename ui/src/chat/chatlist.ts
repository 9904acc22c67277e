/** The list of the user's chats, refreshed regularly. */
import { signal } from "@preact/signals";

import * as server from "../api/endpoints";
import type { ChatQuery, Place } from "../api/endpoints";
import { errorText } from "../api/request";
import type { ChatSummary } from "../api/schema";

export const chats = signal<ChatSummary[]>([]);
export const pinned = signal<ChatSummary[]>([]);
export const query = signal("");
/** Which chats are listed. */
export const place = signal<Place>("list");
/** The tag that all listed chats have. */
export const tag = signal("");
/** The tags of the user's chats, those of most chats first. */
export const tags = signal<string[]>([]);
export const hasMore = signal(false);
export const isLoaded = signal(false);
export const problem = signal("");

const REFRESH_MS = 15_000;
const TYPING_MS = 180;

let next: string | null = null;
/** As many chats as the user has asked for; a refresh lists no fewer. */
let wanted = 0;
let current = new AbortController();
let typing = 0;

export async function refresh(): Promise<void> {
  current.abort();
  const mine = (current = new AbortController());
  const asked = { query: query.peek(), place: place.peek(), tag: tag.peek() };
  try {
    const isPlain = asked.place === "list" && !asked.query && !asked.tag;
    const [page, pins] = await Promise.all([
      firstChats(asked, mine.signal),
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

/** Page by page, until there are as many as are wanted. */
async function firstChats(asked: ChatQuery, signal: AbortSignal) {
  const found: ChatSummary[] = [];
  let page = await server.chats(asked, signal);
  found.push(...page.chats);
  while (page.next !== null && found.length < wanted) {
    page = await server.chats({ ...asked, cursor: page.next }, signal);
    found.push(...page.chats);
  }
  return { chats: withoutRepeats(found), next: page.next };
}

/** All chats of the list, on however many pages. */
export async function everyListed(): Promise<ChatSummary[]> {
  const asked = { query: query.peek(), place: place.peek(), tag: tag.peek() };
  const found: ChatSummary[] = [];
  let page = await server.chats(asked);
  found.push(...page.chats);
  while (page.next !== null) {
    page = await server.chats({ ...asked, cursor: page.next });
    found.push(...page.chats);
  }
  return withoutRepeats(found);
}

/** A chat that has changed between two pages is on both of them. */
function withoutRepeats(found: ChatSummary[]): ChatSummary[] {
  return [...new Map(found.map((chat) => [chat.id, chat] as const)).values()];
}

export async function loadMore(): Promise<void> {
  if (next === null) return;
  const asked = current;
  try {
    const page = await server.chats({
      query: query.peek(),
      place: place.peek(),
      tag: tag.peek(),
      cursor: next,
    });
    // The list has changed in the meantime: this is not a part of it.
    if (asked !== current) return;
    chats.value = withoutRepeats([...chats.peek(), ...page.chats]);
    wanted = chats.peek().length;
    next = page.next;
    hasMore.value = next !== null;
  } catch (error) {
    problem.value = errorText(error);
  }
}

export function search(text: string): void {
  query.value = text;
  wanted = 0;
  window.clearTimeout(typing);
  typing = window.setTimeout(() => void refresh(), TYPING_MS);
}

/** List only chats with this tag; all of them if it is listed already. */
export function showTag(which: string): void {
  tag.value = tag.peek() === which ? "" : which;
  show(place.peek());
}

export async function loadTags(): Promise<void> {
  try {
    tags.value = (await server.tags()).tags.map((entry) => entry.tag);
  } catch {
    // The list itself says if the server is away.
  }
}

/** The open chat has a new title: its entry need not wait for the next refresh. */
export function retitle(id: string, title: string): void {
  for (const list of [chats, pinned]) {
    if (list.peek().every((chat) => chat.id !== id || chat.title === title)) continue;
    list.value = list.peek().map((chat) => (chat.id === id ? { ...chat, title } : chat));
  }
}

export function showPlace(which: Place): void {
  tag.value = "";
  show(which);
}

function show(which: Place): void {
  place.value = which;
  wanted = 0;
  chats.value = [];
  pinned.value = [];
  isLoaded.value = false;
  void refresh();
}

export function keepRefreshing(): void {
  void refresh();
  void loadTags();
  window.setInterval(() => {
    if (!document.hidden) void refresh();
  }, REFRESH_MS);
}
