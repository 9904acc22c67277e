/** Chats pinned, put into the archive or the bin, and taken out again. */
import * as server from "../api/endpoints";
import type { Place } from "../api/endpoints";
import { errorText } from "../api/request";
import type { ChatChange, ChatSummary } from "../api/schema";
import * as chatList from "../chat/chatlist";
import { plural, t } from "../text/language";
import { complain } from "./notice";
import { addressOf, goTo, newChat, openChat } from "./openchat";
import { showToast } from "./toast";

const doneText = (title: string, place: Place): string =>
  ({
    list: t("“{title}” is back among your chats.", { title }),
    archive: t("“{title}” is in the archive.", { title }),
    bin: t("“{title}” is in the bin.", { title }),
  })[place];

export async function pin(id: string, pinned: boolean): Promise<void> {
  await change(id, { pinned });
}

/** Give a chat these tags instead of those it has; why the server refuses them, if it does. */
export async function retag(id: string, tags: string[]): Promise<string> {
  try {
    // The server refuses too many; its type spells out every length.
    taken(id, await server.changeChat(id, { tags: tags as ChatChange["tags"] }));
  } catch (error) {
    return errorText(error);
  }
  void chatList.loadTags();
  return "";
}

/** Move a chat, and offer for some seconds to move it back. */
export async function move(id: string, title: string, to: Place, from: Place): Promise<void> {
  if (!(await change(id, { place: to }))) return;
  const { session } = openChat.peek();
  if (to === "bin" && session.id === id) newChat();
  const back = (): void => {
    void change(id, { place: from }).then((done) => {
      if (done) goTo(addressOf(id));
    });
  };
  showToast({ text: doneText(title || t("Chat"), to), undo: back });
}

/** Remove a chat that is in the bin. */
export async function removeForGood(id: string): Promise<void> {
  try {
    await server.remove(id);
    if (openChat.peek().session.id === id) newChat();
  } catch (error) {
    complain(error);
  }
  await chatList.refresh();
}

/** Remove all chats that the bin's list has, also on the pages that are not shown yet. */
export async function emptyBin(): Promise<void> {
  try {
    await removeAll(await chatList.everyListed());
  } catch (error) {
    complain(error);
  }
  await chatList.refresh();
}

async function removeAll(all: ChatSummary[]): Promise<void> {
  const question = plural(
    all.length,
    "Remove {count} chat for good? This cannot be undone.",
    "Remove {count} chats for good? This cannot be undone.",
  );
  // The browser's own question: no second click at the same place can answer it.
  if (!window.confirm(question)) return;
  for (const { id } of all) {
    await server.remove(id);
    if (openChat.peek().session.id === id) newChat();
  }
}

async function change(id: string, what: ChatChange): Promise<ChatSummary | null> {
  try {
    return taken(id, await server.changeChat(id, what));
  } catch (error) {
    complain(error);
    return null;
  }
}

/** What the server made of a change, shown wherever the chat is. */
function taken(id: string, changed: ChatSummary): ChatSummary {
  const { session } = openChat.peek();
  if (session.id === id) {
    session.place.value = changed.place;
    session.isPinned.value = changed.pinned;
    session.tags.value = changed.tags;
  }
  void chatList.refresh();
  return changed;
}
