/** The tags of the open chat. */
import { useState } from "preact/hooks";

import * as chatList from "../chat/chatlist";
import { isTagsOpen } from "../page/dialogs";
import { openChat } from "../page/openchat";
import { retag } from "../page/places";
import { t } from "../text/language";
import { Dialog } from "./dialog";
import { useFirstFocus } from "./focus";

const MAX_TEXT = 840;

export function TagDialog() {
  if (!isTagsOpen.value) return null;
  return (
    <Dialog title={t("Tags of this chat")} onClose={() => (isTagsOpen.value = false)}>
      <TagForm />
    </Dialog>
  );
}

function TagForm() {
  const { session } = openChat.value;
  const [text, setText] = useState(session.tags.peek().join(", "));
  const [problem, setProblem] = useState("");
  const field = useFirstFocus<HTMLInputElement>();
  const named = tagsOf(text);
  const others = chatList.tags.value.filter((tag) => !named.includes(tag));
  const save = async (): Promise<void> => {
    const refusal = await retag(session.id, tagsOf(text));
    if (!refusal) isTagsOpen.value = false;
    setProblem(refusal);
  };
  return (
    <form
      aria-label={t("Tags of this chat")}
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <label>
        {t("Tags, with commas between them")}
        <input
          maxLength={MAX_TEXT}
          value={text}
          ref={field}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      {others.length > 0 && (
        <div class="tag-choices" role="group" aria-label={t("Tags of your other chats")}>
          {others.map((tag) => (
            <button
              key={tag}
              type="button"
              class="tag"
              onClick={() => setText([...named, tag].join(", "))}
            >
              {tag}
            </button>
          ))}
        </div>
      )}
      <p class="fine">{t("Up to 20 tags, each of at most 40 characters.")}</p>
      <div class="actions">
        <button class="primary">{t("Save")}</button>
      </div>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </form>
  );
}

const tagsOf = (text: string): string[] =>
  text
    .split(",")
    .map((tag) => tag.trim())
    .filter(Boolean);
