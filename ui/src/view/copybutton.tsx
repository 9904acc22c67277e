/** A button that copies a text to the clipboard. */
import { useState } from "preact/hooks";

import { copied } from "../page/clipboard";
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
