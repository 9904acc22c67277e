import { expect, test } from "vitest";

import type { StoredFrame } from "../src/api/frames";
import { bars } from "../src/chat/moments";
import { runAfter } from "../src/chat/replay";
import { frame } from "./frames";

const at = (second: number) => `2026-01-02T03:04:${String(second).padStart(2, "0")}Z`;
const used = (tokens: number) => ({
  usage: { prompt_tokens: tokens, completion_tokens: 1, total_tokens: tokens + 1 },
  cost: { amount: tokens, currency: "EUR" },
});
const CALL = { call_id: "c1", tool_name: "Mail-send", tool_input: "{}" } as const;
const EVENTS = [
  frame("interaction_started", { user_message: "write to Ada", agent: "tour", at: at(0) }),
  frame("thinking", { content: "I will.", spoken: true, at: at(2) }),
  frame("approval_required", { ...CALL, kind: "tool", at: at(2), ...used(10) }),
  frame("approved", { call_id: "c1", tool_name: "Mail-send", by: "human", at: at(5) }),
  frame("tool_call", { id: "c1", tool_name: "Mail-send", tool_input: "{}", at: at(5) }),
  frame("tool_result", {
    id: "c1",
    tool_name: "Mail-send",
    tool_output: "sent",
    at: at(6),
    ...used(7),
  }),
  frame("answer", { content: "Done.", at: at(9), ...used(20) }),
  frame("interaction_complete", { status: "COMPLETED", at: at(9), ...used(30) }),
] as StoredFrame[];

test("a run is replayed to what it was after each of its events", () => {
  const after = (count: number) => runAfter("int_1", EVENTS, count);
  const phase = (count: number) => after(count).steps.find((step) => step.kind === "call")?.phase;
  expect(after(1)).toMatchObject({ message: "write to Ada", steps: [], status: "RUNNING" });
  expect([2, 3, 4, 5, 6].map(phase)).toEqual([undefined, "asked", "decided", "running", "done"]);
  expect(after(7).steps.at(-1)).toMatchObject({ kind: "answer", text: "Done." });
  expect([7, 8].map((count) => after(count).status)).toEqual(["RUNNING", "COMPLETED"]);
});

test("each round of the model and each tool has what it took, and the whole run is in none", () => {
  const { moments } = runAfter("int_1", EVENTS, EVENTS.length);
  const found = bars(moments, 0).map((bar) => [
    bar.kind,
    bar.usage?.prompt_tokens,
    bar.cost?.amount,
  ]);
  expect(found).toEqual([
    ["model", 10, 10],
    ["human", undefined, undefined],
    ["tool", 7, 7],
    ["model", 20, 20],
  ]);
});
