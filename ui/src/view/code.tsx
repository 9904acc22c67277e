/** Code with its language, its colours, and buttons that copy it and wrap its lines. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { t } from "../text/language";
import { CopyButton } from "./copybutton";
import { IconButton } from "./icon";

const MAX_COLOURED = 60_000;

interface CodeProps {
  text: string;
  language: string;
  /** Further buttons. */
  children?: ComponentChildren;
}

export function Code({ text, language, children }: CodeProps) {
  const place = useRef<HTMLElement>(null);
  const [isWrapped, setWrapped] = useState(false);
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
    <figure class="code" data-wrapped={isWrapped}>
      <figcaption>
        <span>{language || t("text")}</span>
        <span class="code-tools">
          {children}
          <IconButton
            icon="wrap"
            label={isWrapped ? t("Do not wrap lines") : t("Wrap lines")}
            onClick={() => setWrapped(!isWrapped)}
          />
          <CopyButton text={() => text} label={t("Copy code")} />
        </span>
      </figcaption>
      <pre tabIndex={0}>
        <code ref={place} />
      </pre>
    </figure>
  );
}
