/** The server's endpoints, typed by its own schema. */
import { ask, send } from "./request";
import type {
  AgentList,
  ApprovalDecision,
  ApprovalPage,
  ApprovalView,
  AuditReport,
  BranchChoice,
  BranchList,
  BudgetReport,
  Cancelling,
  ChatChange,
  ChatPage,
  ChatSummary,
  ChatView,
  EditInteraction,
  FeedbackView,
  GiveFeedback,
  GrantPage,
  InteractionView,
  MeView,
  MessageTaken,
  NamedDecision,
  PassageList,
  Processed,
  Regenerate,
  SessionReport,
  ShareList,
  ShareView,
  SharedChat,
  SignInView,
  StartInteraction,
  Steer,
  TagList,
  UsageReport,
} from "./schema";

export interface Readiness {
  status: string;
  /** For operators only. */
  dependencies?: Record<string, { status: string; kind: string; durability?: string }>;
}

const place = (...parts: string[]): string => `/${parts.map(encodeURIComponent).join("/")}`;
const interaction = (chat: string, id: string, ...rest: string[]): string =>
  place("chats", chat, "interactions", id, ...rest);

export const agents = () => ask<AgentList>("/agents");
export const signIn = () => ask<SignInView>("/sign-in");
export const me = () => ask<MeView>("/me");
export function audit(since: string, user: string, agent: string) {
  const asked = new URLSearchParams({ since, limit: "500" });
  if (user) asked.set("user", user);
  if (agent) asked.set("agent", agent);
  return ask<AuditReport>(`/audit?${asked}`);
}

export const ready = () => ask<Readiness>("/health/ready");

/** Where a chat is listed. */
export type Place = ChatSummary["place"];

export interface ChatQuery {
  query?: string;
  place: Place;
  pinned?: boolean;
  tag?: string;
  cursor?: string;
}

export function chats({ query, place, pinned, tag, cursor }: ChatQuery, signal?: AbortSignal) {
  const asked = new URLSearchParams({ limit: "50", place });
  if (query) asked.set("q", query);
  if (pinned !== undefined) asked.set("pinned", String(pinned));
  if (tag) asked.set("tag", tag);
  if (cursor) asked.set("cursor", cursor);
  return ask<ChatPage>(`/chats?${asked}`, signal ? { signal } : {});
}

export const passages = (chat: string, query: string, limit: number, signal: AbortSignal) =>
  ask<PassageList>(
    `${place("chats", chat, "passages")}?${new URLSearchParams({ q: query, limit: String(limit) })}`,
    { signal },
  );

export function chat(id: string, before?: string) {
  const asked = new URLSearchParams({ include: "superseded", state: "false" });
  if (before) asked.set("before", before);
  return ask<ChatView>(`${place("chats", id)}?${asked}`);
}

export const tags = () => ask<TagList>("/tags");

export const changeChat = (id: string, body: ChatChange) =>
  ask<ChatSummary>(place("chats", id), { method: "PATCH", body });

export const remove = (id: string) => send(place("chats", id), { method: "DELETE" });

export const archive = (id: string) => ask<object>(place("chats", id, "export"));

export const readInteraction = (chat: string, id: string) =>
  ask<InteractionView>(interaction(chat, id));

export const eventsPath = (chat: string) => place("chats", chat, "events");

/** The events of one run, with all that the chat's own stream says of them. */
export const runEventsPath = (chat: string, id: string) =>
  `${interaction(chat, id, "events")}?details=true`;

const STREAM = { Accept: "text/event-stream" };

export const start = (chat: string, body: StartInteraction, key: string, signal: AbortSignal) =>
  send(place("chats", chat, "interactions"), {
    method: "POST",
    body,
    key,
    signal,
    headers: STREAM,
  });

export const edit = (
  chat: string,
  id: string,
  body: EditInteraction,
  key: string,
  signal: AbortSignal,
) => send(interaction(chat, id, "edit"), { method: "POST", body, key, signal, headers: STREAM });

export const regenerate = (
  chat: string,
  id: string,
  body: Regenerate,
  key: string,
  signal: AbortSignal,
) =>
  send(interaction(chat, id, "regenerate"), { method: "POST", body, key, signal, headers: STREAM });

export const decide = (chat: string, id: string, body: NamedDecision, key: string) =>
  ask<Processed>(interaction(chat, id, "approve"), { method: "POST", body, key });

/** The bytes of what a tool returned beside its text. */
export const attachment = (chat: string, id: string, call: string, number: number) =>
  send(interaction(chat, id, "attachments", call, String(number)));

export const cancel = (chat: string, id: string, after?: "step") =>
  ask<Cancelling>(interaction(chat, id, "cancel"), {
    method: "POST",
    ...(after ? { body: { after } } : {}),
  });

export const steer = (chat: string, id: string, body: Steer, key: string, signal: AbortSignal) =>
  ask<MessageTaken>(interaction(chat, id, "steer"), { method: "POST", body, key, signal });

export const giveFeedback = (chat: string, id: string, body: GiveFeedback) =>
  ask<FeedbackView>(interaction(chat, id, "feedback"), { method: "PUT", body });

export const withdrawFeedback = (chat: string, id: string) =>
  send(interaction(chat, id, "feedback"), { method: "DELETE" });

export const chooseBranch = (chat: string, id: string) =>
  ask<BranchList>(place("chats", chat, "branch"), {
    method: "POST",
    body: { interaction_id: id } satisfies BranchChoice,
  });

export const approvals = (cursor?: string) =>
  ask<ApprovalPage>(`/approvals?limit=100${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);

export const approval = (id: string) => ask<ApprovalView>(place("approvals", id));

/** As one of several who decide, perhaps about a call of another user's chat. */
export const vote = (id: string, body: ApprovalDecision, key: string) =>
  ask<Processed>(place("approvals", id), { method: "POST", body, key });

export const withdrawVote = (id: string) =>
  send(place("approvals", id, "vote"), { method: "DELETE" });

/** `isOfAll` is for operators. */
export const usage = (isOfAll = false) => ask<UsageReport>(isOfAll ? "/usage?all=true" : "/usage");
export const budgets = (isOfAll = false) =>
  ask<BudgetReport>(isOfAll ? "/budgets?all=true" : "/budgets");
export const sessions = (since: string) =>
  ask<SessionReport>(`/sessions?${new URLSearchParams({ since, limit: "500" })}`);

export const shares = (chat: string) => ask<ShareList>(place("chats", chat, "shares"));
export const share = (chat: string) =>
  ask<ShareView>(place("chats", chat, "shares"), { method: "POST", body: {} });
export const revokeShare = (id: string) => send(place("shared", id), { method: "DELETE" });
export const sharedChat = (id: string) => ask<SharedChat>(place("shared", id));
export const copyShared = (id: string) =>
  ask<ChatSummary>(place("shared", id, "copy"), { method: "POST" });

export const grants = () => ask<GrantPage>("/grants?limit=100");
export const revoke = (id: string) => send(place("grants", id), { method: "DELETE" });
