/** Thumbs for an answer, and the note that may go with one. */
import { useState } from "preact/hooks";

import * as server from "../api/endpoints";
import type { FeedbackView } from "../api/schema";
import type { Run } from "../chat/run";
import { announce } from "../page/announcer";
import { complain } from "../page/notice";
import type { OpenChat } from "../page/openchat";
import { t } from "../text/language";
import { useFirstFocus } from "./focus";
import { IconButton } from "./icon";
import { VisibleText } from "./visibletext";

type Rating = FeedbackView["rating"];

export interface FeedbackProps {
  openChat: OpenChat;
  run: Run;
  /** The form for the note is open, or is to be. */
  isNoting: boolean;
  setNoting: (isNoting: boolean) => void;
}

export function Thumbs({ openChat, run, setNoting }: FeedbackProps) {
  const rate = async (rating: Rating): Promise<void> => {
    const isTakenBack = run.feedback?.rating === rating;
    setNoting(!isTakenBack);
    if (isTakenBack) await takeBack(openChat, run);
    else await give(openChat, run, rating, null);
  };
  return (
    <>
      <IconButton
        icon="up"
        label={t("Good answer")}
        isPressed={run.feedback?.rating === "up"}
        onClick={() => void rate("up")}
      />
      <IconButton
        icon="down_thumb"
        label={t("Bad answer")}
        isPressed={run.feedback?.rating === "down"}
        onClick={() => void rate("down")}
      />
    </>
  );
}

export function FeedbackNote(props: FeedbackProps) {
  const { feedback } = props.run;
  if (!feedback) return null;
  if (props.isNoting) return <NoteForm {...props} given={feedback} />;
  return feedback.note ? (
    <p class="feedback-note">
      {t("Your note:")} <VisibleText text={feedback.note} />
    </p>
  ) : null;
}

interface NoteProps extends FeedbackProps {
  given: { rating: Rating; note: string | null };
}

function NoteForm({ openChat, run, setNoting, given: { rating, note: before } }: NoteProps) {
  const [note, setNote] = useState(before ?? "");
  const field = useFirstFocus<HTMLTextAreaElement>();
  const send = async (): Promise<void> => {
    setNoting(false);
    if (note.trim()) await give(openChat, run, rating, note.trim());
  };
  return (
    <form
      class="feedback-form"
      aria-label={t("Note about this answer")}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <label>
        {rating === "up" ? t("What was good about it?") : t("What was wrong with it?")}{" "}
        <span class="muted">{t("The people who run this server read it.")}</span>
        <textarea
          rows={2}
          maxLength={4000}
          value={note}
          ref={field}
          onInput={(event) => setNote(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Escape" && setNoting(false)}
        />
      </label>
      <div class="actions">
        <button class="primary" disabled={!note.trim()}>
          {t("Send note")}
        </button>
        <button type="button" onClick={() => setNoting(false)}>
          {t("Without a note")}
        </button>
      </div>
    </form>
  );
}

async function give(
  { session }: OpenChat,
  { id }: Run,
  rating: Rating,
  note: string | null,
): Promise<void> {
  try {
    const given = await server.giveFeedback(session.id, id, note ? { rating, note } : { rating });
    session.setFeedback(id, given);
    announce(t("Thank you. Your rating is kept."));
  } catch (error) {
    complain(error);
  }
}

async function takeBack({ session }: OpenChat, { id }: Run): Promise<void> {
  try {
    await server.withdrawFeedback(session.id, id);
    session.setFeedback(id, null);
    announce(t("Your rating is taken back."));
  } catch (error) {
    complain(error);
  }
}
