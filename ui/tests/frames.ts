/** Frames and runs as the tests need them: only what matters is given. */
import type { FrameOf, RunFrame } from "../src/api/frames";
import type { InteractionView } from "../src/api/schema";
import { folded } from "../src/chat/fold";
import { placeholderRun, type CallStep, type Run } from "../src/chat/run";

export const AT = "2026-01-02T03:04:05Z";

export function frame<Name extends RunFrame["name"]>(
  name: Name,
  fields: Partial<FrameOf<Name>> = {},
): RunFrame {
  return { name, seq: 1, at: AT, interaction_id: "int_1", ...fields } as unknown as RunFrame;
}

export const told = (...frames: RunFrame[]): Run => frames.reduce(folded, placeholderRun("int_1"));

export function callOf(run: Run): CallStep {
  const call = run.steps.find((step) => step.kind === "call");
  if (call?.kind !== "call") throw new Error("the run has no call");
  return call;
}

export const view = (fields: Partial<InteractionView>): InteractionView => ({
  id: "int_1",
  status: "COMPLETED",
  user_message: "hello",
  agent_events: [],
  final_agent_state: null,
  created_at: AT,
  completed_at: null,
  agent: "tour",
  items: [],
  parent_id: null,
  edits: null,
  superseded: false,
  usage: {} as InteractionView["usage"],
  cost: null,
  feedback: null,
  error: null,
  feedback: null,
  partial: null,
  approvals: [],
  steering: [],
  stopping: false,
  ...fields,
});
