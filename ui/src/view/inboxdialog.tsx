/** All calls that wait for a decision, the oldest first, and the standing approvals. */
import { useState } from "preact/hooks";

import { how } from "../account/account";
import { isReachable } from "../api/request";
import type { ApprovalView } from "../api/schema";
import * as inbox from "../inbox/inbox";
import { copied } from "../page/clipboard";
import { closeDialogs, isInboxOpen } from "../page/dialogs";
import { addressOf, toolOf, toolTitle } from "../page/openchat";
import { phrase, t } from "../text/language";
import { ago, fullDate } from "../text/time";
import { Approval } from "./approval";
import { Dialog } from "./dialog";
import { Grants } from "./grants";
import { NotificationSetting } from "./notificationsetting";
import { Risk } from "./risk";
import { VisibleText } from "./visibletext";

export function InboxDialog() {
  if (!isInboxOpen.value) return null;
  const all = inbox.waiting.value;
  return (
    <Dialog title={t("Inbox")} class="wide" onClose={() => (isInboxOpen.value = false)}>
      <NotificationSetting />
      {all.length === 0 && (
        <p class="empty">
          {isReachable.value ? t("Nothing waits for you.") : t("The server cannot be reached.")}
        </p>
      )}
      {all.map((entry) => (
        <WaitingCall key={entry.approval_id} entry={entry} />
      ))}
      <h3>{t("Allowed without asking")}</h3>
      <Grants />
    </Dialog>
  );
}

export function WaitingCall({ entry }: { entry: ApprovalView }) {
  const [isCopied, setCopied] = useState(false);
  return (
    <article class="call" data-phase="asked" aria-label={toolTitle(entry.agent, entry.tool_name)}>
      <header class="inbox-head">
        <span class="tool-title">{toolTitle(entry.agent, entry.tool_name)}</span>
        <code>{entry.tool_name}</code>
        <Risk effect={toolOf(entry.agent, entry.tool_name)?.effect} />
        <button
          type="button"
          class="quiet"
          onClick={() => {
            void copied(`${location.origin}/#/approval/${entry.approval_id}`).then(setCopied);
          }}
        >
          {isCopied ? t("Link copied") : t("Copy link")}
        </button>
      </header>
      <div class="call-body">
        <p class="asker">
          {entry.chat_id ? (
            <a href={addressOf(entry.chat_id)} onClick={closeDialogs}>
              <VisibleText text={entry.chat_title || t("A chat")} />
            </a>
          ) : (
            t("A chat of another person")
          )}
          <span class="muted">
            <Asker entry={entry} />
          </span>
        </p>
        <Approval
          chat={entry.chat_id}
          run={entry.interaction_id}
          agent={entry.agent}
          approval={entry}
        />
      </div>
    </article>
  );
}

/** A server that asks nobody to sign in has one user, whose name says nothing. */
function Asker({ entry }: { entry: ApprovalView }) {
  const { agent } = entry;
  const when = (
    <time dateTime={entry.requested_at} title={fullDate(entry.requested_at)}>
      {ago(entry.requested_at)}
    </time>
  );
  if (how.value?.method === "none") return phrase("asked through {agent}, {when}", { agent, when });
  const name = <VisibleText text={entry.requested_by} />;
  return phrase("asked by {name} through {agent}, {when}", { name, agent, when });
}
