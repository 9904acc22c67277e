/** The chat's title and the menu of the chat. */
import { useRef, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { asMarkdown } from "../chat/document";
import * as chatList from "../chat/chatlist";
import type { ChatSession } from "../chat/session";
import * as inbox from "../inbox/inbox";
import { isShareOpen, isTagsOpen } from "../page/dialogs";
import { downloadFile } from "../page/download";
import { focusOn } from "../page/keyboard";
import { complain } from "../page/notice";
import { isMenuOpen, type OpenChat } from "../page/openchat";
import { move, pin } from "../page/places";
import { plural, t } from "../text/language";
import { Avatar } from "./avatar";
import { Icon, IconButton } from "./icon";
import { useFirstFocus } from "./focus";
import { Menu } from "./menu";

const MENU = ".heading .menu > summary";

export function Heading({ openChat }: { openChat: OpenChat }) {
  const { session } = openChat;
  const [isNaming, setNaming] = useState(false);
  const isOpen = session.phase.value === "open";
  const waiting = session.pendingCount.value;
  return (
    <header class="heading">
      <span class="menu-badge only-narrow">
        <IconButton icon="menu" label={t("Chats")} onClick={() => (isMenuOpen.value = true)} />
        {inbox.count.value > 0 && <span class="count">{inbox.count.value}</span>}
      </span>
      {isOpen && session.agent.value && (
        <span class="agent-name" title={session.agent.value}>
          <Avatar agent={session.agent.value} />
          <span>{session.agent.value}</span>
        </span>
      )}
      {isNaming ? (
        <TitleForm openChat={openChat} onDone={() => setNaming(false)} />
      ) : (
        <h1 class={isOpen ? "" : "unseen"} onDblClick={() => isOpen && setNaming(true)}>
          {session.title.value || (isOpen ? t("Chat") : t("New chat"))}
        </h1>
      )}
      <span class="spacer" />
      {waiting > 0 && (
        <button type="button" class="waiting" onClick={() => focusOn(".approval")}>
          {plural(waiting, "{count} waiting", "{count} waiting")}
        </button>
      )}
      {isOpen && <ChatMenu openChat={openChat} onRename={() => setNaming(true)} />}
    </header>
  );
}

function TitleForm({ openChat, onDone }: { openChat: OpenChat; onDone: () => void }) {
  const { session } = openChat;
  const [title, setTitle] = useState(session.title.peek());
  const field = useFirstFocus<HTMLInputElement>();
  // The field that is taken away is left once more: the first reason counts.
  const hasEnded = useRef(false);
  const end = (isKept: boolean): void => {
    if (hasEnded.current) return;
    hasEnded.current = true;
    const name = title.trim();
    if (isKept && name && name !== session.title.peek()) void rename(session, name);
    onDone();
  };
  return (
    <form
      class="naming"
      onSubmit={(event) => {
        event.preventDefault();
        end(true);
        focusOn(MENU);
      }}
    >
      <input
        aria-label={t("Title of the chat")}
        maxLength={200}
        value={title}
        ref={field}
        onInput={(event) => setTitle(event.currentTarget.value)}
        onBlur={() => end(true)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          end(false);
          focusOn(MENU);
        }}
      />
    </form>
  );
}

async function rename(session: ChatSession, title: string): Promise<void> {
  try {
    await server.changeChat(session.id, { title });
    session.title.value = title;
    void chatList.refresh();
  } catch (error) {
    complain(error);
  }
}

function ChatMenu({ openChat, onRename }: { openChat: OpenChat; onRename: () => void }) {
  const act = (what: () => Promise<void> | void) => (): void => {
    Promise.resolve(what()).catch((error: unknown) => complain(error));
  };
  const { session } = openChat;
  const { id } = session;
  const place = session.place.value;
  const isPinned = session.isPinned.value;
  const title = session.title.value;
  return (
    <Menu icon="more" label={t("Chat menu")}>
      <button type="button" onClick={act(onRename)}>
        <Icon name="edit" /> {t("Rename")}
      </button>
      <button type="button" onClick={act(() => pin(id, !isPinned))}>
        <Icon name="pin" /> {isPinned ? t("Unpin") : t("Pin")}
      </button>
      <button type="button" onClick={act(() => void (isTagsOpen.value = true))}>
        <Icon name="tag" /> {t("Tags…")}
      </button>
      <button type="button" onClick={act(() => void (isShareOpen.value = true))}>
        <Icon name="share" /> {t("Share…")}
      </button>
      <hr />
      <button
        type="button"
        onClick={act(async () => {
          await session.loadAll();
          downloadFile(`${id}.md`, "text/markdown", asMarkdown(session));
        })}
      >
        <Icon name="save" /> {t("Export as Markdown")}
      </button>
      <button
        type="button"
        onClick={act(async () => {
          const document = await server.archive(id);
          downloadFile(`${id}.json`, "application/json", JSON.stringify(document, null, 1));
        })}
      >
        <Icon name="save" /> {t("Export as JSON")}
      </button>
      <hr />
      {place === "list" ? (
        <button type="button" onClick={act(() => move(id, title, "archive", place))}>
          <Icon name="archive" /> {t("Move to the archive")}
        </button>
      ) : (
        <button type="button" onClick={act(() => move(id, title, "list", place))}>
          <Icon name="left" /> {t("Move back to the list")}
        </button>
      )}
      {place !== "bin" && (
        <button type="button" onClick={act(() => move(id, title, "bin", place))}>
          <Icon name="trash" /> {t("Delete")}
        </button>
      )}
    </Menu>
  );
}
