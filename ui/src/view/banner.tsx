/** What is going on with the connection, in one line. */
import { useEffect, useState } from "preact/hooks";

import { notice } from "../page/notice";
import type { Room } from "../page/room";
import { IconButton } from "./icon";

/** A hiccup that is over sooner is not worth a word. */
const PATIENCE_MS = 400;

export function Banner({ room }: { room: Room }) {
  const state = room.session.link.value;
  const isLost = state !== "live" && room.session.phase.value !== "new";
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    if (!isLost) {
      setShown(false);
      return undefined;
    }
    const timer = window.setTimeout(() => setShown(true), PATIENCE_MS);
    return () => window.clearTimeout(timer);
  }, [isLost]);
  return (
    <>
      <div class="banner" role="status" hidden={!isShown || !isLost}>
        {navigator.onLine
          ? "The connection to the server is lost. Trying again; nothing that was said is lost."
          : "This computer is offline. The page goes on by itself when it is back."}
      </div>
      {notice.value && (
        <div class="banner notice" role="alert">
          {notice.value}
          <IconButton icon="cross" label="Dismiss" onClick={() => (notice.value = "")} />
        </div>
      )}
    </>
  );
}
