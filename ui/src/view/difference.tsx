/** The difference of two texts, line by line. */
import { useEffect, useState } from "preact/hooks";

import type { Line } from "../text/changes";
import { plural, t } from "../text/language";
import type { PatchLine } from "../text/patch";
import { VisibleText } from "./visibletext";

const SIGNS = { same: " ", added: "+", removed: "−", place: " ", note: " " };
const FIRST_LINES = 400;

/** Shows nothing if the comparison takes too long. */
export function Difference({ before, after }: { before: string; after: string }) {
  const [lines, setLines] = useState<Line[] | null>(null);
  useEffect(() => {
    let isStale = false;
    void import("../text/changes").then(({ changes }) => {
      if (!isStale) setLines(changes(before, after));
    });
    return () => {
      isStale = true;
    };
  }, [before, after]);
  return lines && <Changes lines={lines} />;
}

export function Changes({ lines }: { lines: (Line | PatchLine)[] }) {
  const [shown, setShown] = useState(FIRST_LINES);
  const left = lines.length - shown;
  return (
    <div>
      <pre class="difference" tabIndex={0} aria-label={t("Changes")}>
        {lines.slice(0, shown).map((line, at) => (
          <div key={at} class={line.kind}>
            {"old" in line && <Numbers line={line} />}
            <span aria-hidden="true">{SIGNS[line.kind]} </span>
            <span class="line">
              {line.kind === "added" && <span class="unseen">{t("added:")} </span>}
              {line.kind === "removed" && <span class="unseen">{t("removed:")} </span>}
              <VisibleText text={line.text} />
            </span>
          </div>
        ))}
      </pre>
      {left > 0 && (
        <button type="button" class="quiet" onClick={() => setShown(lines.length)}>
          {plural(left, "Show the other line", "Show the other {count} lines")}
        </button>
      )}
    </div>
  );
}

function Numbers({ line }: { line: PatchLine }) {
  return (
    <span class="line-numbers" aria-hidden="true">
      <span>{line.old}</span>
      <span>{line.next}</span>
    </span>
  );
}
