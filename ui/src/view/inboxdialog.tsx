/** All calls that wait for a decision, and the standing approvals. */
import { useEffect, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import type { GrantView } from "../api/schema";
import * as inbox from "../inbox/inbox";
import * as notifications from "../inbox/notifications";
import { notice } from "../page/notice";
import { addressOf, toolOf } from "../page/openchat";
import { ago } from "../text/time";
import { Approval } from "./approval";
import { Dialog } from "./dialog";
import { Risk } from "./risk";
import { VisibleText } from "./visibletext";

export function InboxDialog() {
  if (!inbox.isOpen.value) return null;
  const close = (): void => {
    inbox.isOpen.value = false;
  };
  return (
    <Dialog title="Inbox" class="wide" onClose={close}>
      <NotificationSetting />
      {inbox.waiting.value.length === 0 && <p class="empty">Nothing waits for you.</p>}
      {inbox.waiting.value.map((entry) => (
        <article class="call" data-phase="asked" key={entry.approval_id}>
          <header class="inbox-head">
            <code>{entry.tool_name}</code>
            <Risk effect={toolOf(entry.agent, entry.tool_name)?.effect} />
            <span class="muted">
              {entry.agent}
              {entry.review && (
                <>
                  , asked by <VisibleText text={entry.requested_by} />
                </>
              )}
              , {ago(entry.requested_at)}
            </span>
            {entry.chat_id && (
              <a href={addressOf(entry.chat_id)} onClick={close}>
                Open the chat
              </a>
            )}
          </header>
          <div class="call-body">
            <Approval
              chat={entry.chat_id}
              run={entry.interaction_id}
              agent={entry.agent}
              approval={entry}
            />
          </div>
        </article>
      ))}
      <Grants />
    </Dialog>
  );
}

function NotificationSetting() {
  const state = notifications.state.value;
  if (state === "on") return <p class="muted">You are notified when a call waits for you.</p>;
  if (state === "off") {
    return (
      <p>
        <button type="button" onClick={() => void notifications.ask()}>
          Notify me when a call waits
        </button>
      </p>
    );
  }
  if (state === "blocked")
    return <p class="muted">This browser blocks notifications of this page.</p>;
  return null;
}

function Grants() {
  const [all, setAll] = useState<GrantView[]>([]);
  const load = (): void => {
    server
      .grants()
      .then((page) => setAll(page.grants))
      .catch((error: unknown) => (notice.value = errorText(error)));
  };
  useEffect(load, [inbox.count.value]);
  if (all.length === 0) return null;
  return (
    <section aria-label="Standing approvals">
      <h3>Allowed without asking</h3>
      <ul class="grants">
        {all.map((grant) => (
          <li key={grant.grant_id}>
            <span>
              <code>{grant.tool}</code> in{" "}
              <a href={addressOf(grant.chat_id)} onClick={() => (inbox.isOpen.value = false)}>
                this chat
              </a>
              <span class="muted"> since {ago(grant.granted_at)}</span>
            </span>
            <button
              type="button"
              onClick={() =>
                void server
                  .revoke(grant.grant_id)
                  .then(load)
                  .catch((error: unknown) => (notice.value = errorText(error)))
              }
            >
              Revoke
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
