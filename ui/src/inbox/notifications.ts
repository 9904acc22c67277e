/** The browser's own notifications: only if the user has asked for them. */
import { signal } from "@preact/signals";

import type { ApprovalView } from "../api/schema";
import { revealedText } from "../text/hidden";
import { t } from "../text/language";

type State = "unsupported" | "off" | "on" | "blocked";

export const state = signal<State>(read());

export async function ask(): Promise<void> {
  if (state.peek() === "unsupported") return;
  await Notification.requestPermission();
  state.value = read();
}

export function notify(approval: ApprovalView): void {
  if (read() !== "on") return;
  const note = new Notification(t("An agent waits for your decision"), {
    body: revealedText(
      t("{agent} wants to call {tool}", { agent: approval.agent, tool: approval.tool_name }),
    ),
    tag: approval.approval_id,
  });
  note.addEventListener("click", () => {
    window.focus();
    location.hash = `#/approval/${approval.approval_id}`;
    note.close();
  });
}

function read(): State {
  if (!("Notification" in window)) return "unsupported";
  if (Notification.permission === "granted") return "on";
  return Notification.permission === "denied" ? "blocked" : "off";
}
