/** HTML or SVG that an agent has written: as code, and on request as what it is. */
import { useEffect, useRef, useState } from "preact/hooks";

import { ARTIFACT_FRAME, artifactDocument } from "../page/artifacts";
import { t } from "../text/language";
import { Code } from "./code";

const LANGUAGES = ["html", "svg"];

export const hasArtifact = (language: string): boolean =>
  LANGUAGES.includes(language.toLowerCase());

export function Artifact({ text, language }: { text: string; language: string }) {
  const [isShown, setShown] = useState(false);
  return (
    <div class="artifact">
      {isShown && <Frame key={text} text={text} />}
      <Code text={text} language={language}>
        <button type="button" class="quiet" onClick={() => setShown(!isShown)}>
          {isShown ? t("Hide the result") : t("Show the result")}
        </button>
      </Code>
    </div>
  );
}

/** The frame has no origin and no network, and the page takes nothing from it. */
function Frame({ text }: { text: string }) {
  const frame = useRef<HTMLIFrameElement>(null);
  useEffect(() => {
    const hand = (event: MessageEvent): void => {
      const inside = frame.current?.contentWindow;
      if (!inside || event.source !== inside || event.data !== "ready") return;
      inside.postMessage(artifactDocument(text), "*");
    };
    window.addEventListener("message", hand);
    return () => window.removeEventListener("message", hand);
  }, [text]);
  return (
    <iframe
      ref={frame}
      src={ARTIFACT_FRAME}
      sandbox="allow-scripts"
      referrerpolicy="no-referrer"
      title={t("Result")}
    />
  );
}
