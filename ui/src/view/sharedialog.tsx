/** Links that let other people read the open chat. */
import { useEffect, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import type { ShareView } from "../api/schema";
import { isShareOpen } from "../page/dialogs";
import { openChat } from "../page/openchat";
import { t } from "../text/language";
import { ago, fullDate } from "../text/time";
import { CopyButton } from "./copybutton";
import { Dialog } from "./dialog";

export function ShareDialog() {
  if (!isShareOpen.value) return null;
  return (
    <Dialog title={t("Share this chat")} onClose={() => (isShareOpen.value = false)}>
      <Shares chat={openChat.value.session.id} />
    </Dialog>
  );
}

function Shares({ chat }: { chat: string }) {
  const [all, setAll] = useState<ShareView[]>([]);
  const [problem, setProblem] = useState("");
  const act = (what: Promise<unknown>): void => {
    what
      .then(() => server.shares(chat))
      .then(({ shares }) => (setAll(shares), setProblem("")))
      .catch((error: unknown) => setProblem(errorText(error)));
  };
  useEffect(() => act(Promise.resolve()), [chat]);
  return (
    <>
      <p>
        {t(
          "Whoever has a link and may use this server can read the chat as it is now, and go on with a copy of it. What is said here later is not shown.",
        )}
      </p>
      <ul class="grants" aria-label={t("Links")}>
        {all.map((share) => (
          <li key={share.share_id}>
            <input
              readOnly
              aria-label={t("Link of {when}", { when: fullDate(share.created_at) })}
              value={location.origin + share.path}
              onFocus={(event) => event.currentTarget.select()}
            />
            <CopyButton text={() => location.origin + share.path} label={t("Copy link")} />
            <span class="muted">{ago(share.created_at)}</span>
            <button type="button" onClick={() => act(server.revokeShare(share.share_id))}>
              {t("Revoke")}
            </button>
          </li>
        ))}
      </ul>
      <div class="actions">
        <button type="button" class="primary" onClick={() => act(server.share(chat))}>
          {t("Make a link")}
        </button>
      </div>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </>
  );
}
