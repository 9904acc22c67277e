/** The chats of the list under their dates; of a search, with the passages that were found. */
import { useEffect, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import type { ChatSummary, PassageView } from "../api/schema";
import * as chatList from "../chat/chatlist";
import type { ChatSession } from "../chat/session";
import * as inbox from "../inbox/inbox";
import { addressOf, openChat } from "../page/openchat";
import { t } from "../text/language";
import { withoutMarks } from "../text/plain";
import { ago, dateGroup, fullDate } from "../text/time";
import { Avatar } from "./avatar";
import { Icon } from "./icon";

const markOf = (status: string): string | undefined =>
  ({
    RUNNING: t("working"),
    WAITING_APPROVAL: t("needs approval"),
    ASKS: t("asks you something"),
    FAILED: t("failed"),
  })[status];
/** Of so many chats of a search the passages are shown; each is a question to the server. */
const SEARCHED = 12;
const PASSAGES = 3;

export function ChatEntries() {
  const { chats, pinned, query } = chatList;
  if (query.value) {
    return (
      <ul>
        {chats.value.map((chat, at) => (
          <Entry key={chat.id} chat={chat}>
            {at < SEARCHED && <Passages chat={chat.id} query={query.value} />}
          </Entry>
        ))}
      </ul>
    );
  }
  const groups = new Map<string, ChatSummary[]>();
  if (pinned.value.length) groups.set(t("Pinned"), pinned.value);
  for (const chat of chats.value) {
    if (chat.pinned && pinned.value.length) continue;
    const name = dateGroup(chat.updated_at);
    groups.set(name, [...(groups.get(name) ?? []), chat]);
  }
  return (
    <>
      {[...groups].map(([name, group]) => (
        <section key={name} aria-label={name}>
          <h2>{name}</h2>
          <ul>
            {group.map((chat) => (
              <Entry key={chat.id} chat={chat} />
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}

/** What the chat does, or what it waits for.
 *
 * The open chat's own status is newer than the one in the list; a tool that asks a question runs on for the server.
 */
function statusOf(chat: ChatSummary, session: ChatSession): string {
  const isOpen = session.id === chat.id;
  const kinds = isOpen
    ? session.pending.value.map(({ approval }) => approval?.kind)
    : inbox.waiting.value.filter((entry) => entry.chat_id === chat.id).map(({ kind }) => kind);
  if (kinds.length > 0 && kinds.every((kind) => kind === "question")) return "ASKS";
  if (!isOpen) return chat.status;
  if (kinds.length > 0) return "WAITING_APPROVAL";
  return session.activeId.value !== null ? "RUNNING" : chat.status;
}

function Entry({ chat, children }: { chat: ChatSummary; children?: preact.ComponentChildren }) {
  const { session } = openChat.value;
  const isCurrent = session.id === chat.id;
  const status = statusOf(chat, session);
  const mark = markOf(status);
  return (
    <li>
      <a href={addressOf(chat.id)} aria-current={isCurrent ? "page" : undefined} title={chat.title}>
        <Avatar agent={chat.agent} />
        <span class="chat-title">
          <span>{chat.title || t("New chat")}</span>
          {chat.pinned && <Icon name="pin" />}
        </span>
        <span class="chat-facts">
          {mark ? (
            <span class="mark" data-status={status}>
              {mark}
            </span>
          ) : (
            <span>{chat.agent}</span>
          )}
          <time dateTime={chat.updated_at} title={fullDate(chat.updated_at)}>
            {ago(chat.updated_at)}
          </time>
        </span>
        {chat.tags.length > 0 && (
          <span class="chat-tags">
            <Icon name="tag" /> {chat.tags.join(", ")}
          </span>
        )}
      </a>
      {children}
    </li>
  );
}

function Passages({ chat, query }: { chat: string; query: string }) {
  const [found, setFound] = useState<readonly PassageView[]>([]);
  useEffect(() => {
    const leaving = new AbortController();
    server
      .passages(chat, query, PASSAGES, leaving.signal)
      .then(({ passages }) => setFound(passages))
      // The title is still shown; the list itself says if the server is away.
      .catch(() => setFound([]));
    return () => leaving.abort();
  }, [chat, query]);
  return (
    <>
      {found.map((passage, at) => (
        <a
          key={at}
          class="passage"
          href={addressOf(chat, passage.interaction_id)}
          aria-label={t("Go to: {passage}", {
            passage: withoutMarks(passage.before + passage.match + passage.after),
          })}
        >
          {withoutMarks(passage.before)}
          <mark>{passage.match}</mark>
          {withoutMarks(passage.after)}
        </a>
      ))}
    </>
  );
}
