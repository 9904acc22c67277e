/** The chat's title and the menu of the chat. */
import { useEffect, useRef, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import { asMarkdown } from "../chat/document";
import * as chatList from "../chat/chatlist";
import * as inbox from "../inbox/inbox";
import { notice } from "../page/notice";
import { isMenuOpen, newChat, type OpenChat } from "../page/openchat";
import { downloadFile } from "../page/download";
import { IconButton } from "./icon";

export function Heading({ openChat }: { openChat: OpenChat }) {
  const { session } = openChat;
  const [isNaming, setNaming] = useState(false);
  const isOpen = session.phase.value === "open";
  return (
    <header class="heading">
      <IconButton
        icon="menu"
        label="Chats"
        class="only-narrow"
        onClick={() => (isMenuOpen.value = true)}
      />
      {isNaming ? (
        <TitleForm openChat={openChat} onDone={() => setNaming(false)} />
      ) : (
        <h1>{session.title.value || (isOpen ? "Chat" : "New chat")}</h1>
      )}
      {isOpen && <span class="agent-name">{session.agent.value}</span>}
      <span class="spacer" />
      {inbox.count.value > 0 && (
        <button type="button" class="waiting" onClick={() => (inbox.isOpen.value = true)}>
          {inbox.count.value} waiting
        </button>
      )}
      {isOpen && <Menu openChat={openChat} onRename={() => setNaming(true)} />}
    </header>
  );
}

function TitleForm({ openChat, onDone }: { openChat: OpenChat; onDone: () => void }) {
  const [title, setTitle] = useState(openChat.session.title.peek());
  const save = async (): Promise<void> => {
    onDone();
    if (!title.trim() || title === openChat.session.title.peek()) return;
    try {
      await server.rename(openChat.session.id, title.trim());
      openChat.session.title.value = title.trim();
      void chatList.refresh();
    } catch (error) {
      notice.value = errorText(error);
    }
  };
  return (
    <form
      class="naming"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <input
        aria-label="Title of the chat"
        maxLength={200}
        value={title}
        ref={(element) => element?.focus()}
        onInput={(event) => setTitle(event.currentTarget.value)}
        onBlur={() => void save()}
        onKeyDown={(event) => event.key === "Escape" && onDone()}
      />
    </form>
  );
}

function Menu({ openChat, onRename }: { openChat: OpenChat; onRename: () => void }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const [isSure, setSure] = useState(false);
  useEffect(() => {
    const close = (event: Event): void => {
      if (menu.current && !menu.current.contains(event.target as Node)) menu.current.open = false;
    };
    document.addEventListener("click", close);
    return () => document.removeEventListener("click", close);
  }, []);
  const act = (what: () => Promise<void> | void) => (): void => {
    if (menu.current) menu.current.open = false;
    Promise.resolve(what()).catch((error: unknown) => (notice.value = errorText(error)));
  };
  const { session } = openChat;
  return (
    <details class="menu" ref={menu} onToggle={() => setSure(false)}>
      <summary aria-label="Chat menu" title="Chat menu" class="icon-button">
        <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
          <path d="M5 12h.01M12 12h.01M19 12h.01" />
        </svg>
      </summary>
      <div class="menu-items">
        <button type="button" onClick={act(onRename)}>
          Rename
        </button>
        <button
          type="button"
          onClick={act(() =>
            downloadFile(`${session.id}.md`, "text/markdown", asMarkdown(session)),
          )}
        >
          Export as Markdown
        </button>
        <button
          type="button"
          onClick={act(async () => {
            const document = await server.archive(session.id);
            downloadFile(
              `${session.id}.json`,
              "application/json",
              JSON.stringify(document, null, 1),
            );
          })}
        >
          Export as JSON
        </button>
        {isSure ? (
          <button type="button" class="danger" onClick={act(() => removeChat(openChat))}>
            Delete permanently
          </button>
        ) : (
          <button type="button" onClick={() => setSure(true)}>
            Delete…
          </button>
        )}
      </div>
    </details>
  );
}

async function removeChat({ session }: OpenChat): Promise<void> {
  await server.remove(session.id);
  newChat();
  void chatList.refresh();
}
