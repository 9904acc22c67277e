/** The chat that the page shows; the address names it. */
import { effect, signal, type Signal } from "@preact/signals";

import * as server from "../api/endpoints";
import { randomId, errorText } from "../api/request";
import type { AgentView } from "../api/schema";
import { ChatSession } from "../chat/session";
import * as chatList from "../chat/chatlist";
import { loadDraft, type Draft } from "../chat/drafts";
import { MessageSender } from "../chat/sender";
import * as inbox from "../inbox/inbox";
import { forGood, forThisTab } from "./storage";

export interface OpenChat {
  session: ChatSession;
  sender: MessageSender;
  /** What is in the message field. */
  draft: Signal<Draft>;
}

const IDLE_MS = 60_000;
const RETRY_MS = 2_000;
const NEW = "teal.new";
const CHAT = /^#\/([A-Za-z0-9_-]{1,64})(?:\/([A-Za-z0-9_-]{1,80}))?$/;

const SHARED = /^#\/shared\/([0-9a-f]{64})$/;
const APPROVAL = /^#\/approval\/(approval_[A-Za-z0-9-]{1,64})$/;

export const openChat = signal<OpenChat>(opened(""));
/** Chats that were left while a message was on its way: those who come back find it there. */
const sending = new Map<string, OpenChat>();
export const agents = signal<AgentView[]>([]);
/** False until the server has said which agents it has. */
export const areAgentsKnown = signal(false);
export const agentsProblem = signal("");
export const health = signal<server.Readiness | null>(null);
/** The agent of the next new chat. */
export const chosenAgent = signal("");
export const isMenuOpen = signal(false);
/** The link to a shared chat that the address is. */
export const linkedShare = signal<string | null>(null);
/** The approval that the address names. */
export const linkedApproval = signal<string | null>(null);
/** The interaction to which the conversation has to scroll. */
export const sought = signal<string | null>(null);

/** With an interaction, the page goes to it. */
export const addressOf = (chat: string, interaction?: string): string =>
  `#/${chat}${interaction ? `/${interaction}` : ""}`;

export function toolOf(agent: string, tool: string) {
  return agents.value
    .find((entry) => entry.name === agent)
    ?.tools.find((entry) => entry.name === tool);
}

/** What people read instead of the name of a tool. */
export const toolTitle = (agent: string, tool: string): string =>
  toolOf(agent, tool)?.title || tool;

export function chooseAgent(name: string): void {
  chosenAgent.value = name;
  forGood.set("teal.agent", name);
}

export function newChat(): void {
  forThisTab.remove(NEW);
  goTo(addressOf(""));
}

/** Show what an address names, at once.
 *
 * The event of a changed address comes later: what the user types until then would be lost.
 */
export function goTo(address: string): void {
  if (location.hash !== address) history.pushState(null, "", address);
  route();
}

/** Put a new chat into the address: the server has it now. */
export function showAddress(session: ChatSession): void {
  if (forThisTab.get(NEW) === session.id) forThisTab.remove(NEW);
  // The user may have left for another chat while the message was on its way.
  const isShown = session === openChat.peek().session;
  if (isShown && !location.hash.startsWith(addressOf(session.id))) {
    history.replaceState(null, "", addressOf(session.id));
  }
  void chatList.refresh();
}

export function start(): void {
  chosenAgent.value = forGood.get("teal.agent") ?? "";
  void loadAgents();
  void loadHealth();
  window.addEventListener("hashchange", route);
  document.addEventListener("click", followLink);
  route();
  disconnectWhileHidden();
  effect(() => {
    // The server gives a new chat a title after its first message; the list has it.
    const { session } = openChat.value;
    const entry = chatList.chats.value.find((chat) => chat.id === session.id);
    if (entry && session.title.peek() === "") session.title.value = entry.title;
  });
  effect(() => {
    // A model may have made it after the first answer, or the user in another tab.
    const { session } = openChat.value;
    if (session.title.value) chatList.retitle(session.id, session.title.value);
  });
  effect(() => {
    const count = inbox.count.value > 0 ? `(${inbox.count.value}) ` : "";
    document.title =
      count + [openChat.value.session.title.value, "Teal Agents"].filter(Boolean).join(" · ");
  });
}

export async function loadAgents(): Promise<void> {
  try {
    agents.value = (await server.agents()).agents;
    areAgentsKnown.value = true;
    agentsProblem.value = "";
    const names = agents.peek().map((agent) => agent.name);
    if (!names.includes(chosenAgent.peek())) chosenAgent.value = names[0] ?? "";
  } catch (error) {
    agentsProblem.value = errorText(error);
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

/** Close the window of a linked approval, and show a chat again. */
export function leaveApproval(): void {
  linkedApproval.value = null;
  if (APPROVAL.test(location.hash)) history.replaceState(null, "", addressOf(""));
}

function route(): void {
  isMenuOpen.value = false;
  linkedShare.value = SHARED.exec(location.hash)?.[1] ?? null;
  linkedApproval.value = APPROVAL.exec(location.hash)?.[1] ?? null;
  const [, id, interaction] = CHAT.exec(location.hash) ?? [];
  sought.value = interaction ?? null;
  if (id === undefined || linkedShare.peek() || linkedApproval.peek()) show(newId());
  else if (id !== openChat.peek().session.id) {
    const wasKept = sending.has(id);
    show(id);
    const { session } = openChat.peek();
    void (wasKept ? session.resume() : session.open());
  }
}

/** The links of the page are followed at once; those for another tab are the browser's. */
function followLink(event: MouseEvent): void {
  const link = (event.target as Element).closest<HTMLAnchorElement>("a[href^='#/']");
  const isPlain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
  if (!link || !isPlain || event.defaultPrevented) return;
  event.preventDefault();
  goTo(link.getAttribute("href") ?? "");
}

function show(id: string): void {
  if (openChat.peek().session.id === id && openChat.peek().session.phase.peek() === "new") return;
  leave(openChat.peek());
  openChat.value = sending.get(id) ?? opened(id);
  sending.delete(id);
}

function leave(left: OpenChat): void {
  const { session, sender } = left;
  if (sender.outgoing.peek() === null) return session.close();
  session.pause();
  sending.set(session.id, left);
  const dispose = sender.outgoing.subscribe((outgoing) => {
    if (outgoing !== null) return;
    if (sending.get(session.id) === left) {
      sending.delete(session.id);
      session.close();
    }
    dispose();
  });
}

function opened(id: string): OpenChat {
  const session = new ChatSession(id);
  return { session, sender: new MessageSender(session), draft: signal(loadDraft(id)) };
}

/** Stays the same until it is used: a reload while sending does not send a second message. */
function newId(): string {
  const id = forThisTab.get(NEW) ?? `chat_${randomId()}`;
  forThisTab.set(NEW, id);
  return id;
}

/** Browsers allow few connections to a server: a hidden page closes its own. */
function disconnectWhileHidden(): void {
  let timer = 0;
  document.addEventListener("visibilitychange", () => {
    window.clearTimeout(timer);
    const { session } = openChat.peek();
    if (!document.hidden) {
      if (session.phase.peek() === "open") session.listen();
      return;
    }
    timer = window.setTimeout(() => {
      if (document.hidden && session.active.peek() === null) session.pause();
    }, IDLE_MS);
  });
}
