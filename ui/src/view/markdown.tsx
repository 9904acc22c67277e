/** A text in Markdown, finished or still growing. */
import { memo } from "preact/compat";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";

import { blocks, fragment, MAX_MARKDOWN, type Block } from "../text/markdown";
import { Artifact, hasArtifact } from "./artifact";
import { Code } from "./code";
import { Diagram } from "./diagram";
import { LongText } from "./longtext";

interface MarkdownProps {
  text: string;
  /** More of it comes: what can only be shown when it is whole waits. */
  isLive?: boolean;
}

export function Markdown({ text, isLive }: MarkdownProps) {
  const parts = useMemo(() => (text.length > MAX_MARKDOWN ? null : blocks(text)), [text]);
  if (parts === null) return <LongText text={text} />;
  return (
    <div class="markdown" dir="auto" onClick={goToNote} onKeyDown={goToNote}>
      {parts.map((block, at) => (
        <BlockView key={at} block={block} isOpen={isLive === true && at === parts.length - 1} />
      ))}
    </div>
  );
}

function BlockView({ block, isOpen }: { block: Block; isOpen: boolean }) {
  if (block.kind === "html") return <Html html={block.html} />;
  if (block.kind === "formula") return <Html html={displayed(block.text)} />;
  const { text, language } = block;
  if (!isOpen && language === "mermaid") return <Diagram text={text} />;
  if (!isOpen && hasArtifact(language)) return <Artifact text={text} language={language} />;
  return <Code text={text} language={language} />;
}

const Html = memo(function Html({ html }: { html: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = place.current;
    element?.replaceChildren(fragment(html));
    if (element?.querySelector("code.math-source")) {
      void import("../text/maths").then(({ setFormulas }) => setFormulas(element));
    }
  }, [html]);
  return <div ref={place} class="block" />;
});

const displayed = (text: string): string => {
  const code = document.createElement("code");
  code.className = "math-source math-display";
  code.textContent = text;
  return code.outerHTML;
};

/** From the number of a note to the note: the address of the page names the chat. */
function goToNote(event: MouseEvent | KeyboardEvent): void {
  if ("key" in event && event.key !== "Enter") return;
  const mark = (event.target as HTMLElement).closest<HTMLElement>("[data-note]");
  if (!mark) return;
  const notes = (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>(".footnotes li");
  const note = notes[Number(mark.dataset["note"]) - 1];
  if (!note) return;
  note.tabIndex = -1;
  note.focus();
  note.scrollIntoView({ block: "nearest" });
}
