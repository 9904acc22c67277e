import { describe, expect, test } from "vitest";
import type { FrameOf } from "../src/api/frames";
import { folded, hasGap } from "../src/chat/fold";
import { cutText } from "../src/chat/run";
import { AT, callOf, frame, told } from "./frames";

const started = frame("interaction_started", { user_message: "hello", agent: "tour" });
const called = frame("tool_call", { id: "c1", tool_name: "Mail-send", tool_input: '{"to":"ada"}' });
const asked = frame("approval_required", {
  call_id: "c1",
  tool_name: "Mail-send",
  tool_input: '{"to":"ada"}',
  kind: "tool",
});

const piece = (content: string, offset: number, more: Partial<FrameOf<"answer_delta">> = {}) =>
  frame("answer_delta", { content, offset, round: 1, attempt: 1, ...more });

describe("a run", () => {
  test("starts with what was said and who answers", () => {
    const run = told(started);
    expect(run).toMatchObject({ message: "hello", agent: "tour", status: "RUNNING" });
    expect(run.isPlaceholder).toBe(false);
    expect(run.moments).toEqual([{ what: "started", at: Date.parse(AT) }]);
  });

  test("that waited for its turn keeps that moment when it starts", () => {
    const run = told(frame("interaction_queued", { user_message: "later" }), started);
    expect(run.queued).toBe(false);
    expect(run.moments.map((moment) => moment.what)).toEqual(["queued", "started"]);
  });

  test.each(["length", "content_filter"] as const)("that was cut by %s says so", (reason) => {
    const [step] = told(started, frame("answer", { content: "half", finish_reason: reason })).steps;
    expect(step).toMatchObject({ kind: "answer", text: "half", isCut: true });
    expect(step?.kind === "answer" && cutText(step)).toContain("Cut short");
    const whole = told(started, frame("answer", { content: "whole" }));
    expect(whole.steps).toEqual([{ kind: "answer", text: "whole", isCut: false }]);
  });

  test("that is told a second time from its start shows nothing twice", () => {
    const once = told(started, frame("answer", { content: "done" }));
    const again = [started, frame("answer", { content: "done" })].reduce(folded, once);
    expect(again.steps).toEqual(once.steps);
  });

  test("is never changed in place", () => {
    const before = Object.freeze(told(started, called));
    Object.freeze(before.steps);
    folded(before, frame("tool_result", { id: "c1", tool_output: "sent" }));
    expect(callOf(before).phase).toBe("running");
  });

  test("ends with its status, usage and cost", () => {
    const usage = {} as FrameOf<"interaction_complete">["usage"];
    const run = told(started, frame("interaction_complete", { status: "COMPLETED", usage }));
    expect(run).toMatchObject({ status: "COMPLETED", queued: false, usage, cost: null });
  });
});

describe("a call that others decide about", () => {
  const review = {
    audience: { roles: [], groups: ["finance"], users: [] },
    quorum: 2,
    not_requester: true,
    on_expiry: "deny" as const,
    share_conversation: false,
    votes: [],
    missing: 2,
  };
  const reviewed = { ...asked, review } as typeof asked;
  const said = (voter: string, missing: number) =>
    frame("vote_cast", { call_id: "c1", voter, voter_name: voter, approved: true, missing });

  test("shows each voter once, and how many are missing", () => {
    const run = told(started, reviewed, said("bob", 1), said("bob", 1));
    expect(callOf(run).approval?.review).toMatchObject({ missing: 1, votes: [{ voter: "bob" }] });
  });

  test("forgets a vote that was withdrawn", () => {
    const back = frame("vote_withdrawn", { call_id: "c1", voter: "bob", missing: 2 });
    const run = told(started, reviewed, said("bob", 1), back);
    expect(callOf(run).approval?.review).toMatchObject({ missing: 2, votes: [] });
  });

  test("is another group's after its time", () => {
    const audience = { roles: [], groups: ["board"], users: [] };
    const later = frame("review_extended", { call_id: "c1", audience, expires_at: AT, missing: 2 });
    const run = told(started, reviewed, later);
    expect(callOf(run).approval).toMatchObject({ expires_at: AT, review: { audience } });
  });
});

describe("a preview", () => {
  test("grows piece by piece and gives way to the answer", () => {
    const growing = told(started, piece("Hel", 0), piece("lo", 3));
    expect(growing.preview?.answer).toEqual({ text: "Hello", length: 5 });
    const run = folded(growing, frame("answer", { content: "Hello" }));
    expect(run.preview).toBeNull();
    expect(run.steps).toEqual([{ kind: "answer", text: "Hello", isCut: false }]);
  });

  test("is counted in code points, as the server counts", () => {
    const run = told(started, piece("👍", 0), piece("!", 1));
    expect(run.preview?.answer).toEqual({ text: "👍!", length: 2 });
  });

  test.each([{ round: 2 }, { attempt: 2 }])("of another %o voids the one before", (more) => {
    const run = told(started, piece("old", 0), piece("new", 0, more));
    expect(run.preview?.answer.text).toBe("new");
  });

  test("that starts from zero again replaces what was there", () => {
    expect(told(started, piece("old", 0), piece("new", 0)).preview?.answer.text).toBe("new");
  });

  test("is kept, marked as cut, when the run is stopped", () => {
    const run = told(started, piece("Hal", 0), frame("cancelled"));
    expect(run.status).toBe("CANCELLED");
    expect(run.steps).toEqual([{ kind: "answer", text: "Hal", isCut: true }]);
  });

  test("of nothing leaves no step when the run is stopped", () => {
    expect(told(started, frame("cancelled")).steps).toEqual([]);
  });

  test.each([
    [0, false],
    [3, false],
    [2, true],
    [4, true],
  ])("of three characters, followed by a piece at %i, has a gap: %s", (offset, gap) => {
    const { preview } = told(started, piece("abc", 0));
    expect(hasGap(preview, piece("d", offset) as FrameOf<"answer_delta">)).toBe(gap);
  });
});

describe("a call", () => {
  test("runs, prints and ends with its result alone", () => {
    const output = frame("tool_output", { call_id: "c1", offset: 0, chunk: "line 1" });
    const running = told(started, called, output);
    expect(callOf(running)).toMatchObject({ phase: "running", preview: { text: "line 1" } });
    const done = folded(running, frame("tool_result", { id: "c1", tool_output: "sent" }));
    expect(callOf(done)).toMatchObject({ phase: "done", output: "sent", preview: { text: "" } });
  });

  test("whose output is printed again from a place replaces what stood there", () => {
    const print = (offset: number, chunk: string) =>
      frame("tool_output", { call_id: "c1", offset, chunk });
    const run = told(started, called, print(0, "abcdef"), print(2, "X"));
    expect(callOf(run).preview).toEqual({ text: "abX", length: 3 });
  });

  test("ends the round: what was being said was no answer", () => {
    const run = told(started, piece("I will", 0), called);
    expect(run.preview).toBeNull();
    expect(run.steps.map((step) => step.kind)).toEqual(["call"]);
  });

  test.each([
    ["approved", "decided", true],
    ["rejected", "refused", false],
  ] as const)("that is %s is %s and says by whom", (name, phase, approved) => {
    const verdict = frame(name, { call_id: "c1", by: "human", decided_by: "ada" });
    const call = callOf(told(started, asked, verdict));
    expect(call).toMatchObject({ phase, approval: null });
    expect(call.verdict).toMatchObject({ approved, by: "human", decidedBy: "ada" });
  });

  test("that is approved with other arguments shows those", () => {
    const verdict = frame("approved", { call_id: "c1", edited_arguments: { to: "bob" } });
    expect(callOf(told(started, asked, verdict)).input).toBe('{"to":"bob"}');
  });

  test("that asks a question keeps its arguments and goes on when answered", () => {
    const question = frame("approval_required", {
      call_id: "c1",
      tool_input: '{"question":"Which?"}',
      kind: "question",
    });
    const waiting = told(started, called, question);
    expect(callOf(waiting)).toMatchObject({ phase: "asked", input: '{"to":"ada"}' });
    const answered = folded(waiting, frame("rejected", { call_id: "c1" }));
    expect(callOf(answered).phase).toBe("running");
  });
});

describe("what is said while the agent works", () => {
  const said = frame("steered", { message_id: "m1", content: "in Spain" });

  test("is shown once, and marked when the model gets it", () => {
    const run = told(started, piece("It is", 0), said, said);
    expect(run.preview?.answer.text).toBe("It is");
    expect(run.steps).toEqual([
      { kind: "steered", id: "m1", text: "in Spain", isDelivered: false },
    ]);
    const heard = folded(run, frame("steering_delivered", { message_ids: ["m1"] }));
    expect(heard.steps[0]).toMatchObject({ isDelivered: true });
  });

  test("leaves what the agent had answered as a remark", () => {
    const run = told(started, said, frame("thinking", { content: "It is sunny.", spoken: true }));
    expect(run.steps.map((step) => step.kind)).toEqual(["steered", "remark"]);
  });
});

test("a run that stops after its step says so until it ends", () => {
  const run = told(started, frame("stopping"));
  expect(run.isStopping).toBe(true);
  const ended = folded(run, frame("interaction_complete", { status: "CANCELLED" }));
  expect(ended.isStopping).toBe(false);
});

test("a rating replaces the one before, and can be taken back", () => {
  const rated = told(started, frame("feedback_given", { rating: "down", note: "Wrong year." }));
  expect(rated.feedback).toEqual({ rating: "down", note: "Wrong year." });
  expect(folded(rated, frame("feedback_given", { rating: "up" })).feedback).toEqual({
    rating: "up",
    note: null,
  });
  expect(folded(rated, frame("feedback_given", { rating: null })).feedback).toBeNull();
});
