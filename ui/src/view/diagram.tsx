/** A text of Mermaid as the diagram that it describes. */
import { useEffect, useState } from "preact/hooks";

import { theme } from "../page/preferences";
import { t } from "../text/language";
import { Code } from "./code";

interface Picture {
  address: string;
  width: number;
  height: number;
}

const SIZE = /viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"/;

export function Diagram({ text }: { text: string }) {
  const [picture, setPicture] = useState<Picture | null>(null);
  const [problem, setProblem] = useState("");
  const [isSource, setSource] = useState(false);
  const isDark = useDark();
  useEffect(() => {
    let isStale = false;
    void import("../page/diagrams")
      .then(({ drawn }) => drawn(text, isDark))
      .then((svg) => isStale || (setPicture(pictureOf(svg)), setProblem("")))
      .catch((error: unknown) => isStale || setProblem(String((error as Error).message)));
    return () => {
      isStale = true;
    };
  }, [text, isDark]);
  if (!picture || isSource) {
    return (
      <>
        <Code text={text} language="mermaid">
          {picture && (
            <button type="button" class="quiet" onClick={() => setSource(false)}>
              {t("Show the diagram")}
            </button>
          )}
        </Code>
        {problem && (
          <p class="fine">{t("No diagram: {reason}", { reason: problem.split("\n")[0] ?? "" })}</p>
        )}
      </>
    );
  }
  return (
    <figure class="diagram">
      <div class="diagram-view" tabIndex={0} role="group" aria-label={t("Diagram")}>
        {/* An image runs no script, whatever is in it. */}
        <img
          src={picture.address}
          width={picture.width}
          height={picture.height}
          style={{
            "--width": `${picture.width}px`,
            "--shape": String(picture.width / picture.height),
          }}
          alt={t("Diagram: {text}", { text: text.slice(0, 300) })}
        />
      </div>
      <button type="button" class="quiet" onClick={() => setSource(true)}>
        {t("Show the source")}
      </button>
    </figure>
  );
}

function pictureOf(svg: string): Picture {
  const [, width = "640", height = "360"] = SIZE.exec(svg) ?? [];
  return {
    address: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`,
    width: Math.ceil(Number(width)),
    height: Math.ceil(Number(height)),
  };
}

function useDark(): boolean {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const [isSystemDark, setSystemDark] = useState(system.matches);
  useEffect(() => {
    const change = (event: MediaQueryListEvent): void => setSystemDark(event.matches);
    system.addEventListener("change", change);
    return () => system.removeEventListener("change", change);
  }, []);
  return theme.value === "system" ? isSystemDark : theme.value === "dark";
}
