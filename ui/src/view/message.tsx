/** A message of the user, and the form that edits it. */
import { useState } from "preact/hooks";

import type { Item, ItemView } from "../api/schema";
import type { Run } from "../chat/run";
import type { OpenChat } from "../page/openchat";
import { t } from "../text/language";
import { Branches } from "./branches";
import { CopyButton } from "./copybutton";
import { useFirstFocus } from "./focus";
import { IconButton } from "./icon";
import { SentFile } from "./sentfile";

/** Of a longer message only the beginning is shown at first. */
const MAX_SHOWN = 5_000;

export function Message({ openChat, run }: { openChat: OpenChat; run: Run }) {
  const [isEditing, setEditing] = useState(false);
  return (
    <div class="message">
      {isEditing ? (
        <EditForm openChat={openChat} run={run} onDone={() => setEditing(false)} />
      ) : (
        <MessageText text={run.message} items={run.items} />
      )}
      <div class="message-tools">
        <Branches session={openChat.session} run={run.id} />
        {!isEditing && (
          <>
            <CopyButton text={() => run.message} label={t("Copy message")} />
            <IconButton
              icon="edit"
              label={t("Edit message")}
              class="edit-message"
              disabled={run.queued}
              onClick={() => setEditing(true)}
            />
          </>
        )}
      </div>
    </div>
  );
}

export function MessageText({ text, items }: { text: string; items: (Item | ItemView)[] }) {
  const [isWhole, setWhole] = useState(text.length <= MAX_SHOWN);
  return (
    <div class="said" dir="auto">
      {items.map((item, at) =>
        item.content_type === "image" ? (
          <img key={at} src={item.content} alt={item.name ?? t("Attached picture")} />
        ) : (
          <SentFile key={at} item={item} />
        ),
      )}
      <span>{isWhole ? text : `${text.slice(0, MAX_SHOWN)}…`}</span>
      {!isWhole && (
        <button type="button" class="quiet" onClick={() => setWhole(true)}>
          {t("Show all")}
        </button>
      )}
    </div>
  );
}

function EditForm({ openChat, run, onDone }: { openChat: OpenChat; run: Run; onDone: () => void }) {
  const [text, setText] = useState(run.message);
  const field = useFirstFocus<HTMLTextAreaElement>();
  const send = (): void => {
    if (!text.trim()) return;
    onDone();
    void openChat.sender.replaceMessage(run, text);
  };
  return (
    <form
      class="editing"
      aria-label={t("Edit message")}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        aria-label={t("New text of the message")}
        rows={Math.min(12, text.split("\n").length + 1)}
        value={text}
        ref={field}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onDone();
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            send();
          }
        }}
      />
      <div class="actions">
        <button class="primary" disabled={!text.trim()}>
          {t("Send")}
        </button>
        <button type="button" onClick={onDone}>
          {t("Cancel")}
        </button>
        <span class="muted">{t("The old answer is kept as another version.")}</span>
      </div>
    </form>
  );
}
