/** The list of the user's chats, with search and the button for a new one. */
import type { ChatSummary } from "../api/schema";
import type { ChatSession } from "../chat/session";
import * as chatList from "../chat/chatlist";
import * as inbox from "../inbox/inbox";
import { isHelpOpen } from "../page/dialogs";
import { addressOf, isMenuOpen, newChat, openChat } from "../page/openchat";
import { ago, fullDate } from "../text/time";
import { Account } from "./account";
import { AuditButton } from "./audit";
import { Icon, IconButton } from "./icon";

const MARKS: Record<string, string> = {
  RUNNING: "working",
  WAITING_APPROVAL: "needs approval",
  FAILED: "failed",
};

export function Sidebar() {
  return (
    <nav class="sidebar" aria-label="Chats" data-open={isMenuOpen.value}>
      <div class="sidebar-head">
        <span class="brand">Teal Agents</span>
        <IconButton
          icon="cross"
          label="Close menu"
          class="only-narrow"
          onClick={() => (isMenuOpen.value = false)}
        />
      </div>
      <button type="button" class="primary wide-button" onClick={newChat}>
        <Icon name="plus" /> New chat
      </button>
      <label class="search">
        <Icon name="search" />
        <span class="unseen">Find a chat</span>
        <input
          id="search"
          type="search"
          placeholder="Find a chat"
          value={chatList.query.value}
          onInput={(event) => chatList.search(event.currentTarget.value)}
        />
      </label>
      <ul class="chats">
        {chatList.chats.value.map((chat) => (
          <Entry key={chat.id} chat={chat} />
        ))}
        {chatList.isLoaded.value && chatList.chats.value.length === 0 && (
          <li class="empty">
            {chatList.query.value ? "No chat contains this text." : "No chats yet."}
          </li>
        )}
      </ul>
      {chatList.hasMore.value && (
        <button type="button" class="quiet" onClick={() => void chatList.loadMore()}>
          More
        </button>
      )}
      <div class="sidebar-foot">
        <button
          type="button"
          class="quiet inbox-button"
          onClick={() => (inbox.isOpen.value = true)}
        >
          <Icon name="bell" /> Inbox
          {inbox.count.value > 0 && <span class="count">{inbox.count.value}</span>}
        </button>
        <button type="button" class="quiet" onClick={() => (isHelpOpen.value = true)}>
          Keyboard <kbd>?</kbd>
        </button>
        <AuditButton />
      </div>
      <Account />
    </nav>
  );
}

/** The open chat's own status is newer than the one in the list. */
function liveStatus(session: ChatSession): string | null {
  if (session.pendingCount.value > 0) return "WAITING_APPROVAL";
  return session.activeId.value !== null ? "RUNNING" : null;
}

function Entry({ chat }: { chat: ChatSummary }) {
  const { session } = openChat.value;
  const isCurrent = session.id === chat.id;
  const status = isCurrent ? (liveStatus(session) ?? chat.status) : chat.status;
  const mark = MARKS[status];
  return (
    <li>
      <a href={addressOf(chat.id)} aria-current={isCurrent ? "page" : undefined} title={chat.title}>
        <span class="chat-title">{chat.title || "New chat"}</span>
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
      </a>
    </li>
  );
}
