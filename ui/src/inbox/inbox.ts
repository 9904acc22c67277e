/** The calls of all chats that wait for a decision. */
import { computed, signal } from "@preact/signals";

import * as server from "../api/endpoints";
import { ServerProblem, randomId, errorText } from "../api/request";
import type { ApprovalView, NamedDecision } from "../api/schema";
import { t } from "../text/language";
import { notify } from "./notifications";

export const waiting = signal<ApprovalView[]>([]);
/** Those that wait for this user; the others wait for other people. */
export const count = computed(() => waiting.value.filter(isForMe).length);

const VISIBLE_MS = 5_000;
const HIDDEN_MS = 15_000;

const channel = "BroadcastChannel" in window ? new BroadcastChannel("teal.approvals") : null;
const announced = new Set<string>();
let isFirst = true;
let timer = 0;
let asked = 0;

const isForMe = (entry: ApprovalView): boolean =>
  !entry.review || (entry.may_decide === true && entry.my_vote !== true);

export type Decision = Omit<NamedDecision, "approval_id" | "digest">;

export interface Outcome {
  ok: boolean;
  problem: string;
}

export async function refresh(): Promise<void> {
  window.clearTimeout(timer);
  const mine = ++asked;
  try {
    const { approvals } = await server.approvals();
    // An answer that was overtaken may still name what is decided by now.
    if (mine !== asked) return;
    waiting.value = approvals;
    announce(approvals);
  } catch {
    // The banner of the open chat says that the server cannot be reached.
  }
  window.clearTimeout(timer);
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
  shown: Pick<ApprovalView, "approval_id" | "digest" | "review">,
  decision: Decision,
): Promise<Outcome> {
  const { approval_id, digest } = shown;
  try {
    const { missing } = shown.review
      ? await server.vote(approval_id, { ...decision, digest }, randomId())
      : await server.decide(chat, run, { ...decision, approval_id, digest }, randomId());
    if (!missing) {
      waiting.value = waiting.peek().filter((entry) => entry.approval_id !== approval_id);
    }
    return { ok: true, problem: "" };
  } catch (error) {
    return { ok: false, problem: refusalText(error) };
  } finally {
    channel?.postMessage("decided");
    void refresh();
  }
}

/** Take a vote back that has not decided anything. */
export async function withdrawVote(id: string): Promise<Outcome> {
  try {
    await server.withdrawVote(id);
    return { ok: true, problem: "" };
  } catch (error) {
    return { ok: false, problem: refusalText(error) };
  } finally {
    channel?.postMessage("decided");
    await refresh();
  }
}

function refusalText(error: unknown): string {
  const made = error instanceof ServerProblem ? error.members["decision"] : undefined;
  if (made === undefined) return errorText(error);
  const {
    approved,
    decided_by_name: name,
    decided_by: who,
    by,
  } = made as {
    approved: boolean;
    decided_by_name: string | null;
    decided_by: string | null;
    by: string;
  };
  const decider = name ?? who ?? by;
  return approved
    ? t("Already approved by {who}.", { who: decider })
    : t("Already rejected by {who}.", { who: decider });
}

function announce(approvals: ApprovalView[]): void {
  for (const approval of approvals) {
    if (announced.has(approval.approval_id)) continue;
    announced.add(approval.approval_id);
    if (!isFirst && document.hidden && isForMe(approval)) notify(approval);
  }
  isFirst = false;
}
