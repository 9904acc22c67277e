/** What waits for a decision, in whatever chat. */
import { computed, signal } from "@preact/signals";

import * as server from "../api/endpoints";
import { ServerProblem, randomId, wordsFor } from "../api/request";
import type { ApprovalView, NamedDecision } from "../api/schema";
import { notify } from "./notifications";

export const waiting = signal<ApprovalView[]>([]);
export const count = computed(() => waiting.value.length);
export const isOpen = signal(false);

const SEEN_MS = 5_000;
const HIDDEN_MS = 15_000;

const channel = "BroadcastChannel" in window ? new BroadcastChannel("teal.approvals") : null;
const announced = new Set<string>();
let isFirst = true;
let timer = 0;

export type Decision = Omit<NamedDecision, "approval_id" | "digest">;

export interface Outcome {
  ok: boolean;
  words: string;
}

export async function look(): Promise<void> {
  window.clearTimeout(timer);
  try {
    const { approvals } = await server.approvals();
    waiting.value = approvals;
    announce(approvals);
  } catch {
    // The banner of the open chat says that the server is away.
  }
  timer = window.setTimeout(() => void look(), document.hidden ? HIDDEN_MS : SEEN_MS);
}

export function keepLooking(): void {
  void look();
  channel?.addEventListener("message", () => void look());
  document.addEventListener("visibilitychange", () => document.hidden || void look());
}

/** Decide about exactly what was shown: its digest goes along. */
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
    return { ok: true, words: "" };
  } catch (error) {
    return { ok: false, words: lateWords(error) };
  } finally {
    channel?.postMessage("decided");
    void look();
  }
}

function lateWords(error: unknown): string {
  const made = error instanceof ServerProblem ? error.members["decision"] : undefined;
  if (made === undefined) return wordsFor(error);
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
