/** What the user said, and the place to say it otherwise. */
import { useState } from "preact/hooks";

import type { Item, ItemView } from "../api/schema";
import type { Run } from "../chat/run";
import type { Room } from "../page/room";
import { Branches } from "./branches";
import { Copying } from "./copying";
import { IconButton } from "./icon";

/** A message that is longer shows its beginning first. */
const MOST = 5_000;

export function Message({ room, run }: { room: Room; run: Run }) {
  const [isEditing, setEditing] = useState(false);
  return (
    <div class="message">
      {isEditing ? (
        <Editing room={room} run={run} onDone={() => setEditing(false)} />
      ) : (
        <Said text={run.message} items={run.items} />
      )}
      <div class="message-tools">
        <Branches session={room.session} run={run.id} />
        {!isEditing && (
          <>
            <Copying text={() => run.message} label="Copy message" />
            <IconButton
              icon="edit"
              label="Edit message"
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

export function Said({ text, items }: { text: string; items: (Item | ItemView)[] }) {
  const [isWhole, setWhole] = useState(text.length <= MOST);
  return (
    <div class="said" dir="auto">
      {items.map((item, at) =>
        item.content_type === "image" ? (
          <img key={at} src={item.content} alt={item.name ?? "Attached picture"} />
        ) : (
          <span key={at} class="file">
            {item.name ?? "file"}
          </span>
        ),
      )}
      <span>{isWhole ? text : `${text.slice(0, MOST)}…`}</span>
      {!isWhole && (
        <button type="button" class="quiet" onClick={() => setWhole(true)}>
          Show all of it
        </button>
      )}
    </div>
  );
}

function Editing({ room, run, onDone }: { room: Room; run: Run; onDone: () => void }) {
  const [text, setText] = useState(run.message);
  const send = (): void => {
    if (!text.trim()) return;
    onDone();
    void room.voice.sayInstead(run, text);
  };
  return (
    <form
      class="editing"
      aria-label="Edit message"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        aria-label="New text of the message"
        rows={Math.min(12, text.split("\n").length + 1)}
        value={text}
        ref={(element) => element?.focus()}
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
          Send
        </button>
        <button type="button" onClick={onDone}>
          Cancel
        </button>
        <span class="muted">The old answer stays as another version.</span>
      </div>
    </form>
  );
}
