/** What is to be replaced by what. */
import { useEffect, useState } from "preact/hooks";

import type { Line } from "../text/changes";
import { Revealing } from "./revealing";

const SIGNS = { same: " ", added: "+", removed: "−" };
const WORDS = { same: "", added: "added: ", removed: "removed: " };
const MAX_LINES = 2_000;

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
  return (
    <pre class="difference" tabIndex={0} aria-label="Changes">
      {(lines ?? []).slice(0, MAX_LINES).map((line, at) => (
        <div key={at} class={line.kind}>
          <span aria-hidden="true">{SIGNS[line.kind]} </span>
          <span class="unseen">{WORDS[line.kind]}</span>
          <Revealing text={line.text} />
        </div>
      ))}
    </pre>
  );
}
