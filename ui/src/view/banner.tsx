/** The state of the connection, in one line. */
import { useEffect, useState } from "preact/hooks";

import { notice } from "../page/notice";
import type { OpenChat } from "../page/openchat";
import { t } from "../text/language";
import { IconButton } from "./icon";

/** A shorter interruption is not shown. */
const DELAY_MS = 400;

export function Banner({ openChat }: { openChat: OpenChat }) {
  const state = openChat.session.link.value;
  const isLost = state !== "live" && openChat.session.phase.value !== "new";
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    if (!isLost) {
      setShown(false);
      return undefined;
    }
    const timer = window.setTimeout(() => setShown(true), DELAY_MS);
    return () => window.clearTimeout(timer);
  }, [isLost]);
  return (
    // One row of the page, whichever of them are shown.
    <div class="banners">
      <div class="banner" role="status" hidden={!isShown || !isLost}>
        {navigator.onLine
          ? t("The connection to the server is lost. Trying again; your messages are safe.")
          : t("This computer is offline. The page continues when it is online again.")}
      </div>
      {notice.value && (
        <div class="banner notice" role="alert">
          {notice.value}
          <IconButton icon="cross" label={t("Dismiss")} onClick={() => (notice.value = "")} />
        </div>
      )}
    </div>
  );
}
