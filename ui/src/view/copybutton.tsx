/** A button that copies a text to the clipboard. */
import { useState } from "preact/hooks";

import { t } from "../text/language";
import { IconButton } from "./icon";

const SHOWN_MS = 1_500;

export function CopyButton({ text, label }: { text: () => string; label: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    if (!(await copied(text()))) return;
    setDone(true);
    setTimeout(() => setDone(false), SHOWN_MS);
  };
  return (
    <IconButton
      icon={isDone ? "check" : "copy"}
      label={isDone ? t("Copied") : label}
      onClick={() => void copy()}
    />
  );
}

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

/** A page that was loaded without encryption may not use the clipboard directly. */
function copiedBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}
