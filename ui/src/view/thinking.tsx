/** The model's thinking, closed until the user opens it. */
import { t } from "../text/language";
import { withoutMarks } from "../text/plain";
import { Icon } from "./icon";
import { Markdown } from "./markdown";

const EXCERPT_LENGTH = 160;

export function Thinking({ text, isLive }: { text: string; isLive?: boolean }) {
  const excerpt = isLive ? text.slice(-EXCERPT_LENGTH) : text.slice(0, EXCERPT_LENGTH);
  return (
    <details class="thinking" data-live={isLive ?? false}>
      <summary>
        <Icon name="thought" />
        <span>{isLive ? t("Thinking…") : t("Thought")}</span>
        <span class="glimpse" aria-hidden="true">
          {withoutMarks(excerpt)}
        </span>
      </summary>
      <Markdown text={text} />
    </details>
  );
}
