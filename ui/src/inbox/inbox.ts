/** The calls of all chats that wait for a decision. */
import { computed, signal } from "@preact/signals";

import * as server from "../api/endpoints";
import { ServerProblem, randomId, errorText } from "../api/request";
import type { ApprovalView, NamedDecision } from "../api/schema";
import { notify } from "./notifications";

export const waiting = signal<ApprovalView[]>([]);
export const count = computed(() => waiting.value.length);
export const isOpen = signal(false);

const VISIBLE_MS = 5_000;
const HIDDEN_MS = 15_000;

const channel = "BroadcastChannel" in window ? new BroadcastChannel("teal.approvals") : null;
const announced = new Set<string>();
let isFirst = true;
let timer = 0;

export type Decision = Omit<NamedDecision, "approval_id" | "digest">;

export interface Outcome {
  ok: boolean;
  problem: string;
}

export async function refresh(): Promise<void> {
  window.clearTimeout(timer);
  try {
    const { approvals } = await server.approvals();
    waiting.value = approvals;
    announce(approvals);
  } catch {
    // The banner of the open chat says that the server cannot be reached.
  }
  timer = window.setTimeout(() => void refresh(), document.hidden ? HIDDEN_MS : VISIBLE_MS);
}

export function keepRefreshing(): void {
  void refresh();
  channel?.addEventListener("message", () => void refresh());
  document.addEventListener("visibilitychange", () => document.hidden || void refresh());
}

/** Decide about exactly what was shown: its digest is sent too. */
export async function decide(
  chat: string,
  run: string,
  shown: { approval_id: string; digest: string },
  decision: Decision,
): Promise<Outcome> {
  const body = { ...decision, approval_id: shown.approval_id, digest: shown.digest };
  try {
    await server.decide(chat, run, body, randomId());
    waiting.value = waiting.peek().filter((entry) => entry.approval_id !== shown.approval_id);
    return { ok: true, problem: "" };
  } catch (error) {
    return { ok: false, problem: refusalText(error) };
  } finally {
    channel?.postMessage("decided");
    void refresh();
  }
}

function refusalText(error: unknown): string {
  const made = error instanceof ServerProblem ? error.members["decision"] : undefined;
  if (made === undefined) return errorText(error);
  const {
    approved,
    decided_by: who,
    by,
  } = made as {
    approved: boolean;
    decided_by: string | null;
    by: string;
  };
  return `Already ${approved ? "approved" : "rejected"} by ${who ?? by}.`;
}

function announce(approvals: ApprovalView[]): void {
  for (const approval of approvals) {
    if (announced.has(approval.approval_id)) continue;
    announced.add(approval.approval_id);
    if (!isFirst && document.hidden) notify(approval);
  }
  isFirst = false;
}
