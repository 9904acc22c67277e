import { expect, test } from "vitest";
import type { ApprovalView } from "../src/api/schema";
import { answerOf, waitingCalls, isOver, runOf, placeholderRun } from "../src/chat/run";
import { callOf, view } from "./frames";

const CALL = { type: "TOOL_CALL", id: "c1", tool_name: "Mail-send", tool_input: "{}" } as const;
const RESULT = {
  type: "TOOL_RESULT",
  id: "c1",
  tool_name: "Mail-send",
  tool_output: "sent",
} as const;
const waiting = (call_id: string) =>
  ({ approval_id: "a1", call_id, tool_name: "Mail-send", tool_input: "{}" }) as ApprovalView;

test("a placeholderRun is a run of which nothing is known", () => {
  expect(placeholderRun("int_1")).toMatchObject({ id: "int_1", isPlaceholder: true, steps: [] });
  expect(isOver(placeholderRun("int_1"))).toBe(false);
});

test("a stored run has its thoughts, calls with their results, and answers, in order", () => {
  const run = runOf(
    view({
      agent_events: [
        { type: "THINKING", content: "hm" },
        CALL,
        RESULT,
        { type: "ANSWER", content: "done" },
      ],
    }),
  );
  expect(run.steps.map((step) => step.kind)).toEqual(["thought", "call", "answer"]);
  expect(callOf(run)).toMatchObject({ phase: "done", output: "sent" });
  expect(answerOf(run)).toBe("done");
  expect(isOver(run)).toBe(true);
});

test("a result without its call is left out", () => {
  expect(runOf(view({ agent_events: [RESULT] })).steps).toEqual([]);
});

test("a run that waits for an approval is still running, and its call is asked", () => {
  const run = runOf(
    view({ status: "WAITING_APPROVAL", agent_events: [CALL], approvals: [waiting("c1")] }),
  );
  expect(run.status).toBe("RUNNING");
  expect(waitingCalls(run).map((call) => call.id)).toEqual(["c1"]);
  expect(run.steps).toHaveLength(1);
});

test("an approval whose call is not stored yet brings its call along", () => {
  const run = runOf(view({ status: "WAITING_APPROVAL", approvals: [waiting("c2")] }));
  expect(waitingCalls(run).map((call) => call.id)).toEqual(["c2"]);
});

test("what was said until a stop is an answer that is cut", () => {
  const run = runOf(view({ status: "CANCELLED", partial: "Hal" }));
  expect(run.steps).toEqual([{ kind: "answer", text: "Hal", isCut: true }]);
});

test("the last answer counts", () => {
  const answers = ["first", "second"].map((content) => ({ type: "ANSWER", content }) as const);
  expect(answerOf(runOf(view({ agent_events: answers })))).toBe("second");
});

test("what was said meanwhile stands where it was said", () => {
  const said = (message_id: string, after_events: number, delivered: boolean) => ({
    message_id,
    content: message_id,
    at: "",
    delivered,
    after_events,
    delivered_after_events: delivered ? after_events : null,
  });
  const { steps } = runOf(
    view({
      agent_events: [CALL, { type: "ANSWER", content: "done" }],
      steering: [said("early", 1, true), said("late", 2, false)],
    }),
  );
  expect(steps.map((step) => step.kind)).toEqual(["call", "steered", "answer", "steered"]);
  expect(steps[1]).toMatchObject({ id: "early", isDelivered: true });
  expect(steps[3]).toMatchObject({ id: "late", isDelivered: false });
});
