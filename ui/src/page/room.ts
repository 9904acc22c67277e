/** What the page shows: one chat, named by the address. */
import { effect, signal } from "@preact/signals";

import * as server from "../api/endpoints";
import { randomId, wordsFor } from "../api/request";
import type { AgentView } from "../api/schema";
import { ChatSession } from "../chat/session";
import * as shelf from "../chat/shelf";
import { Voice } from "../chat/speaking";

export interface Room {
  session: ChatSession;
  voice: Voice;
}

const IDLE_MS = 60_000;
const RETRY_MS = 2_000;
const NEW = "teal.new";
const CHAT = /^#\/([A-Za-z0-9_-]{1,64})$/;

export const room = signal<Room>(enter(newId()));
export const agents = signal<AgentView[]>([]);
export const agentsProblem = signal("");
export const health = signal<server.Readiness | null>(null);
/** The agent of the next new chat. */
export const chosenAgent = signal(localStorage.getItem("teal.agent") ?? "");
export const isMenuOpen = signal(false);

export const addressOf = (chat: string): string => `#/${chat}`;

export function toolOf(agent: string, tool: string) {
  return agents.value
    .find((entry) => entry.name === agent)
    ?.tools.find((entry) => entry.name === tool);
}

export function chooseAgent(name: string): void {
  chosenAgent.value = name;
  localStorage.setItem("teal.agent", name);
}

export function newChat(): void {
  sessionStorage.removeItem(NEW);
  if (location.hash === "" || location.hash === "#/") show(newId());
  else location.hash = "#/";
}

/** A new chat has arrived at the server: it has an address now. */
export function settle(): void {
  const { session } = room.peek();
  sessionStorage.removeItem(NEW);
  if (location.hash !== addressOf(session.id)) {
    history.replaceState(null, "", addressOf(session.id));
  }
  void shelf.refresh();
}

export function start(): void {
  void loadAgents();
  void loadHealth();
  window.addEventListener("hashchange", route);
  route();
  restWhileHidden();
  effect(() => {
    // The server names a new chat after its first message; the list says how.
    const { session } = room.value;
    const entry = shelf.chats.value.find((chat) => chat.id === session.id);
    if (entry && session.title.peek() === "") session.title.value = entry.title;
  });
  effect(() => {
    document.title = [room.value.session.title.value, "Teal Agents"].filter(Boolean).join(" · ");
  });
}

export async function loadAgents(): Promise<void> {
  try {
    agents.value = (await server.agents()).agents;
    agentsProblem.value = "";
    const names = agents.peek().map((agent) => agent.name);
    if (!names.includes(chosenAgent.peek())) chosenAgent.value = names[0] ?? "";
  } catch (error) {
    agentsProblem.value = wordsFor(error);
    window.setTimeout(() => void loadAgents(), RETRY_MS);
  }
}

async function loadHealth(): Promise<void> {
  try {
    health.value = await server.ready();
  } catch {
    health.value = null;
  }
}

function route(): void {
  isMenuOpen.value = false;
  const id = CHAT.exec(location.hash)?.[1];
  if (id === undefined) show(newId());
  else if (id !== room.peek().session.id) {
    show(id);
    void room.peek().session.open();
  }
}

function show(id: string): void {
  if (room.peek().session.id === id && room.peek().session.phase.peek() === "new") return;
  room.peek().session.close();
  room.value = enter(id);
}

function enter(id: string): Room {
  const session = new ChatSession(id);
  return { session, voice: new Voice(session) };
}

/** The same until it is used, so that a reload in the middle of sending sends no second one. */
function newId(): string {
  const id = sessionStorage.getItem(NEW) ?? `chat_${randomId()}`;
  sessionStorage.setItem(NEW, id);
  return id;
}

/** Browsers allow few connections to a server: a page that nobody sees gives its one back. */
function restWhileHidden(): void {
  let timer = 0;
  document.addEventListener("visibilitychange", () => {
    window.clearTimeout(timer);
    const { session } = room.peek();
    if (!document.hidden) {
      if (session.phase.peek() === "open") session.listen();
      return;
    }
    timer = window.setTimeout(() => {
      if (document.hidden && session.active.peek() === null) session.pause();
    }, IDLE_MS);
  });
}
