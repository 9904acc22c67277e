/** The chat's title and what can be done with the chat as a whole. */
import { useEffect, useRef, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { wordsFor } from "../api/request";
import { asMarkdown } from "../chat/document";
import * as shelf from "../chat/shelf";
import * as inbox from "../inbox/inbox";
import { notice } from "../page/notice";
import { isMenuOpen, newChat, type Room } from "../page/room";
import { saveFile } from "../page/saving";
import { IconButton } from "./icon";

export function Heading({ room }: { room: Room }) {
  const { session } = room;
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
        <Naming room={room} onDone={() => setNaming(false)} />
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
      {isOpen && <Menu room={room} onRename={() => setNaming(true)} />}
    </header>
  );
}

function Naming({ room, onDone }: { room: Room; onDone: () => void }) {
  const [title, setTitle] = useState(room.session.title.peek());
  const save = async (): Promise<void> => {
    onDone();
    if (!title.trim() || title === room.session.title.peek()) return;
    try {
      await server.rename(room.session.id, title.trim());
      room.session.title.value = title.trim();
      void shelf.refresh();
    } catch (error) {
      notice.value = wordsFor(error);
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

function Menu({ room, onRename }: { room: Room; onRename: () => void }) {
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
    Promise.resolve(what()).catch((error: unknown) => (notice.value = wordsFor(error)));
  };
  const { session } = room;
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
          onClick={act(() => saveFile(`${session.id}.md`, "text/markdown", asMarkdown(session)))}
        >
          Export as Markdown
        </button>
        <button
          type="button"
          onClick={act(async () => {
            const document = await server.archive(session.id);
            saveFile(`${session.id}.json`, "application/json", JSON.stringify(document, null, 1));
          })}
        >
          Export as JSON
        </button>
        {isSure ? (
          <button type="button" class="danger" onClick={act(() => removeChat(room))}>
            Delete for good
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

async function removeChat({ session }: Room): Promise<void> {
  await server.remove(session.id);
  newChat();
  void shelf.refresh();
}
