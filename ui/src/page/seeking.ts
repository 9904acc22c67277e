/** Finds an interaction in a chat, however old it is and whatever branch it is on. */
import { chooseBranch } from "../api/endpoints";
import type { ChatSession } from "../chat/session";

/** Loads what is needed; the place among the visible ones, or -1. */
export async function placeOf(session: ChatSession, id: string): Promise<number> {
  while (!session.get(id) && session.older.peek() !== null) await session.loadOlder();
  const run = session.get(id);
  if (!run) return -1;
  if (!session.visible.peek().includes(id) && session.activeId.peek() === null) {
    await chooseBranch(session.id, id);
    await untilVisible(session, id);
  }
  return session.visible.peek().indexOf(id);
}

/** The stream says which branch is shown now; it comes soon after the answer. */
function untilVisible(session: ChatSession, id: string): Promise<void> {
  return new Promise((resolve) => {
    const late = window.setTimeout(end, 5_000);
    const stop = session.visible.subscribe((shown) => {
      if (shown.includes(id)) queueMicrotask(end);
    });
    function end(): void {
      window.clearTimeout(late);
      stop();
      resolve();
    }
  });
}
