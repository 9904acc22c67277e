/** Code with its language, its colours and a way to take it away. */
import { useEffect, useRef } from "preact/hooks";

import { CopyButton } from "./copybutton";

const MAX_COLOURED = 60_000;

export function Code({ text, language }: { text: string; language: string }) {
  const place = useRef<HTMLElement>(null);
  useEffect(() => {
    let isStale = false;
    const element = place.current;
    if (!element) return undefined;
    element.textContent = text;
    if (language && text.length < MAX_COLOURED) {
      void import("../text/highlight").then(({ highlighted }) => {
        const coloured = isStale ? null : highlighted(text, language);
        if (coloured) element.replaceChildren(coloured);
      });
    }
    return () => {
      isStale = true;
    };
  }, [text, language]);
  return (
    <figure class="code">
      <figcaption>
        <span>{language || "text"}</span>
        <CopyButton text={() => text} label="Copy code" />
      </figcaption>
      <pre tabIndex={0}>
        <code ref={place} />
      </pre>
    </figure>
  );
}
