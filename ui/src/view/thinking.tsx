/** What a model thinks: there for those who want to see it. */
import { Icon } from "./icon";
import { Markdown } from "./markdown";

const GLIMPSE = 160;

export function Thinking({ text, isLive }: { text: string; isLive?: boolean }) {
  const glimpse = isLive ? text.slice(-GLIMPSE) : text.slice(0, GLIMPSE);
  return (
    <details class="thinking" data-live={isLive ?? false}>
      <summary>
        <Icon name="thought" />
        <span>{isLive ? "Thinking…" : "Thought"}</span>
        <span class="glimpse" aria-hidden="true">
          {glimpse.replace(/\s+/g, " ")}
        </span>
      </summary>
      <Markdown text={text} />
    </details>
  );
}
