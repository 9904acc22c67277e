/** A text in Markdown, finished or still growing. */
import { memo } from "preact/compat";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";

import { blocks, fragment, MAX_MARKDOWN } from "../text/markdown";
import { Code } from "./code";
import { LongText } from "./longtext";

export function Markdown({ text }: { text: string }) {
  const parts = useMemo(() => (text.length > MAX_MARKDOWN ? null : blocks(text)), [text]);
  if (parts === null) return <LongText text={text} />;
  return (
    <div class="markdown" dir="auto">
      {parts.map((block, at) =>
        block.kind === "code" ? (
          <Code key={at} text={block.text} language={block.language} />
        ) : (
          <Html key={at} html={block.html} />
        ),
      )}
    </div>
  );
}

const Html = memo(function Html({ html }: { html: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => place.current?.replaceChildren(fragment(html)), [html]);
  return <div ref={place} class="block" />;
});
