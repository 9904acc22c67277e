/** Keyboard shortcuts. */
import { cancel } from "../api/endpoints";
import { t } from "../text/language";
import { isOver } from "../chat/run";
import { switchBranch } from "../view/branches";
import { isHelpOpen, isInboxOpen, replayedRun, shownTimeline } from "./dialogs";
import { complain } from "./notice";
import { newChat, openChat } from "./openchat";

interface Shortcut {
  keys: string;
  what: () => string;
  run?: () => void;
}

export const SHORTCUTS: Shortcut[] = [
  { keys: "Enter", what: () => t("Send the message (Shift+Enter: a new line)") },
  { keys: "Ctrl+Enter", what: () => t("Tell the agent now, while it works") },
  { keys: "/", what: () => t("Write a message"), run: () => focusOn("#composer") },
  { keys: "n", what: () => t("New chat"), run: newChat },
  { keys: "f", what: () => t("Find a chat"), run: () => focusOn("#search") },
  { keys: "j", what: () => t("Next message"), run: () => step(1) },
  { keys: "k", what: () => t("Previous message"), run: () => step(-1) },
  { keys: "e", what: () => t("Edit this message"), run: () => press(".edit-message") },
  {
    keys: "r",
    what: () => t("Regenerate this answer"),
    run: () => press(".regenerate"),
  },
  { keys: "[", what: () => t("Previous version of this message"), run: () => branch(-1) },
  { keys: "]", what: () => t("Next version of this message"), run: () => branch(1) },
  { keys: "t", what: () => t("Timeline of this run"), run: timeline },
  { keys: "p", what: () => t("Replay this run step by step"), run: replay },
  {
    keys: "a",
    what: () => t("Go to the call that waits for approval"),
    run: () => focusOn(".approval"),
  },
  { keys: "i", what: () => t("Inbox of approvals"), run: () => (isInboxOpen.value = true) },
  { keys: "s", what: () => t("Stop the agent"), run: () => void stopRun() },
  {
    keys: "S",
    what: () => t("Stop the agent after this step"),
    run: () => void stopRun("step"),
  },
  { keys: "?", what: () => t("This list"), run: () => (isHelpOpen.value = true) },
  { keys: "Esc", what: () => t("Close a dialog, leave a field") },
];

/** At once, or once the step that is at work has come to its end. */
export async function stopRun(after?: "step"): Promise<void> {
  const { session } = openChat.peek();
  const active = session.active.peek();
  if (!active) return;
  try {
    await cancel(session.id, active.id, after);
  } catch (error) {
    complain(error);
  }
}

export function listenToKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const target = event.target as HTMLElement;
    const isTyping = target.matches("input, textarea, select, [contenteditable]");
    if (isTyping) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    const found = SHORTCUTS.find((shortcut) => shortcut.keys === event.key)?.run;
    if (!found) return;
    event.preventDefault();
    found();
  });
}

export function focusOn(selector: string): void {
  const element = document.querySelector<HTMLElement>(selector);
  element?.focus();
  element?.scrollIntoView({ block: "nearest" });
}

function turns(): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>(".turn")];
}

/** The message under the focus, or the last one. */
function current(): HTMLElement | undefined {
  const focused = document.activeElement?.closest<HTMLElement>(".turn");
  return focused ?? turns().at(-1);
}

function step(by: 1 | -1): void {
  const all = turns();
  const focused = document.activeElement?.closest<HTMLElement>(".turn");
  const at = focused ? all.indexOf(focused) + by : by > 0 ? 0 : all.length - 1;
  const target = all[Math.max(0, Math.min(all.length - 1, at))];
  target?.focus();
  target?.scrollIntoView({ block: "start" });
}

function press(selector: string): void {
  current()?.querySelector<HTMLButtonElement>(selector)?.click();
}

function branch(by: -1 | 1): void {
  const run = current()?.dataset["run"];
  if (run) void switchBranch(openChat.peek().session, run, by);
}

/** A run that still works is not replayed. */
function replay(): void {
  const run = current()?.dataset["run"];
  const known = run === undefined ? undefined : openChat.peek().session.get(run);
  if (known && isOver(known)) replayedRun.value = known.id;
}

function timeline(): void {
  shownTimeline.value = current()?.dataset["run"] ?? null;
}
