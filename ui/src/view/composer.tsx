/** The message field. The text is kept in the browser until the server has it. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { randomId } from "../api/request";
import { emptyDraft, keepDraft, type Draft } from "../chat/drafts";
import { itemsOf } from "../chat/attachments";
import { dropped } from "../page/dropping";
import { stopRun } from "../page/keyboard";
import { refill } from "../page/refill";
import { agents, areAgentsKnown, chosenAgent, showAddress, type OpenChat } from "../page/openchat";
import { t } from "../text/language";
import { Icon, IconButton } from "./icon";

const MAX_HEIGHT = 240;
/** In bytes; what is longer goes as a file. */
const MAX_MESSAGE = 262_144;

export function Composer({ openChat }: { openChat: OpenChat }) {
  const { session, sender, draft: kept } = openChat;
  // Files are read and messages sent for a while, and the draft may change in that time.
  const draft = kept.value;
  const [problem, setProblem] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  const file = useRef<HTMLInputElement>(null);
  const isSending = sender.outgoing.value !== null;
  const isBusy = session.activeId.value !== null;
  const isStopping = session.isStopping.value;
  // Files go with a message of their own.
  const canSteer = isBusy && !isStopping && draft.items.length === 0;
  const hasAgent = agents.value.length > 0 || !areAgentsKnown.value;
  // The user was faster than the list of agents or the message before: this one goes as soon as it can.
  const [waiting, setWaiting] = useState<"send" | "steer" | null>(null);
  useLayoutEffect(() => {
    // On a small screen the keyboard would cover the conversation.
    if (isWide()) field.current?.focus();
  }, []);
  useEffect(() => grow(field.current), [draft.text]);
  useEffect(() => {
    if (dropped.value.length === 0) return;
    const files = dropped.value;
    dropped.value = [];
    void attach(files);
  }, [dropped.value]);

  useEffect(() => {
    if (refill.value === null) return;
    const text = [refill.value, kept.peek().text].filter(Boolean).join("\n\n");
    refill.value = null;
    change({ text });
    field.current?.focus();
  }, [refill.value]);

  const change = (part: Partial<Draft>): void => {
    // A changed text is another message, so it must not have the key of the old one.
    const next = { ...kept.peek(), ...part, key: randomId() };
    setWaiting(null);
    kept.value = next;
    keepDraft(session.id, next);
  };
  const attach = async (files: Iterable<File>): Promise<void> => {
    const { items, problem: words } = await itemsOf(files, kept.peek().items);
    setProblem(words);
    if (items.length) change({ items: [...kept.peek().items, ...items] });
  };
  const send = async (): Promise<void> => {
    if (!draft.text.trim() || !hasAgent) return;
    if (isSending || !areAgentsKnown.peek()) return setWaiting("send");
    setWaiting(null);
    if (bytesOf(draft.text) > MAX_MESSAGE) return setProblem(tooLong());
    setProblem("");
    const isNew = session.phase.peek() === "new";
    if ((await deliver(sender.send(draft, chosenAgent.peek()))) && isNew) showAddress(session);
  };
  const steer = async (): Promise<void> => {
    if (!draft.text.trim()) return;
    if (isSending) return setWaiting("steer");
    const run = session.activeId.peek();
    if (!canSteer || run === null || bytesOf(draft.text) > MAX_MESSAGE) return send();
    setWaiting(null);
    await deliver(sender.steer(run, draft));
  };
  const deliver = async (sent: Promise<boolean>): Promise<boolean> => {
    keepDraft(session.id, draft);
    kept.value = emptyDraft();
    const hasArrived = await sent;
    // What was written in the meantime is the next message.
    const written = kept.peek();
    if (hasArrived) keepDraft(session.id, written);
    else if (!written.text && written.items.length === 0) kept.value = draft;
    else {
      const text = [draft.text, written.text].filter(Boolean).join("\n\n");
      change({ text, items: [...draft.items, ...written.items] });
    }
    return hasArrived;
  };

  useEffect(() => {
    if (waiting === null || isSending || !areAgentsKnown.value) return;
    void (waiting === "steer" ? steer() : send());
  }, [waiting, isSending, areAgentsKnown.value]);

  return (
    <form
      class="composer"
      aria-label={t("Message")}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {(problem || sender.problem.value) && (
        <p class="problem" role="alert">
          {problem || sender.problem.value}
        </p>
      )}
      <Attachments draft={draft} onRemove={(items) => change({ items })} />
      <div class="field">
        <textarea
          id="composer"
          ref={field}
          dir="auto"
          rows={1}
          value={draft.text}
          placeholder={placeholder(hasAgent, isBusy)}
          aria-label={t("Message to the agent")}
          onInput={(event) => change({ text: event.currentTarget.value })}
          onPaste={(event) => {
            const files = [...(event.clipboardData?.files ?? [])];
            const words = event.clipboardData?.getData("text/plain") ?? "";
            if (bytesOf(draft.text + words) > MAX_MESSAGE) {
              files.push(new File([words], t("pasted.txt"), { type: "text/plain" }));
            }
            if (files.length) {
              event.preventDefault();
              void attach(files);
            }
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
              event.preventDefault();
              void (event.ctrlKey || event.metaKey ? steer() : send());
            }
          }}
        />
        <input
          ref={file}
          type="file"
          multiple
          hidden
          aria-label={t("Files to attach")}
          accept="image/png,image/jpeg,image/gif,image/webp,application/pdf,text/*,.md,.json,.yaml,.csv,.log"
          onChange={(event) => {
            // The list is the field's own: it is empty once the field is.
            const files = [...(event.currentTarget.files ?? [])];
            event.currentTarget.value = "";
            void attach(files);
          }}
        />
        <IconButton icon="clip" label={t("Attach")} onClick={() => file.current?.click()} />
        {isBusy && (
          <button type="button" class="stop" onClick={() => void stopRun()}>
            <Icon name="stop" /> {t("Stop")}
          </button>
        )}
        <button
          class="primary send"
          aria-label={isBusy ? t("Queue: send when the agent is done") : t("Send")}
          disabled={!draft.text.trim() || !hasAgent}
        >
          <Icon name="send" />
        </button>
      </div>
      {isBusy && (
        <div class="meanwhile">
          <button
            type="button"
            class="quiet steer"
            disabled={!canSteer || !draft.text.trim()}
            title={t("The agent gets it with its next step (Ctrl+Enter)")}
            onClick={() => void steer()}
          >
            {t("Send now")}
          </button>
          <button
            class="quiet"
            disabled={!draft.text.trim() || !hasAgent}
            title={t("It is sent when the agent is done (Enter)")}
          >
            {t("Queue")}
          </button>
          <span class="spring" />
          {isStopping ? (
            <span class="muted">{t("Stopping after this step.")}</span>
          ) : (
            <button type="button" class="quiet" onClick={() => void stopRun("step")}>
              {t("Stop after this step")}
            </button>
          )}
        </div>
      )}
    </form>
  );
}

interface AttachmentsProps {
  draft: Draft;
  onRemove: (left: Draft["items"]) => void;
}

function Attachments({ draft, onRemove }: AttachmentsProps) {
  if (draft.items.length === 0) return null;
  return (
    <ul class="attachments" aria-label={t("Attachments")}>
      {draft.items.map((item, at) => (
        <li key={at}>
          {item.content_type === "image" ? (
            <img src={item.content} alt={item.name ?? t("Picture")} />
          ) : (
            <span class="file">
              <Icon name="clip" /> {item.name}
            </span>
          )}
          <IconButton
            icon="cross"
            label={t("Remove {name}", { name: item.name ?? t("attachment") })}
            onClick={() => onRemove(draft.items.filter((_, other) => other !== at))}
          />
        </li>
      ))}
    </ul>
  );
}

function placeholder(hasAgent: boolean, isBusy: boolean): string {
  if (!hasAgent) return t("This server has no agent yet");
  if (!isBusy) return t("Write a message");
  return isWide() ? t("Tell the agent more, or write the next message") : t("Say more");
}

const isWide = (): boolean => window.matchMedia("(min-width: 720px)").matches;

const bytesOf = (text: string): number => new TextEncoder().encode(text).length;

const tooLong = (): string =>
  t("A message takes 256 KB of text. Attach what is longer as a file of text.");

function grow(area: HTMLTextAreaElement | null): void {
  if (!area) return;
  area.style.height = "auto";
  // Without a text the height would be that of its placeholder, which may have several lines.
  if (area.value) area.style.height = `${Math.min(area.scrollHeight, MAX_HEIGHT)}px`;
}
