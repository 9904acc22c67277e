/** Adds a frame of the stream to a run. A pure function. */
import type { FrameOf, RunFrame } from "../api/frames";
import type { CostView, ReviewView, UsageView } from "../api/schema";
import {
  newCall,
  NO_TEXT,
  thoughtOf,
  type ApprovalRequest,
  wholeAnswer,
  type CallStep,
  type PartialText,
  type Moment,
  type Preview,
  type Run,
} from "./run";

type Piece = FrameOf<"answer_delta" | "thinking_delta">;

/** The run after this frame. */
export function folded(run: Run, frame: RunFrame): Run {
  switch (frame.name) {
    case "interaction_queued":
      return {
        ...run,
        queued: true,
        message: frame.user_message ?? run.message,
        agent: frame.agent ?? run.agent,
        moments: [moment("queued", frame)],
        isPlaceholder: false,
      };
    case "interaction_started":
      return started(run, frame);
    case "thinking":
      return {
        ...withMoment(run, moment("model", frame)),
        steps: [...run.steps, thoughtOf(frame)],
        preview: null,
      };
    case "answer":
      return {
        ...withMoment(run, moment("model", frame)),
        steps: [...run.steps, wholeAnswer(frame)],
        preview: null,
      };
    case "answer_delta":
    case "thinking_delta":
      return { ...run, preview: withPiece(run.preview, frame) };
    case "tool_call":
      return withCall(
        withMoment(run, { ...moment("called", frame), call: frame.id, tool: frame.tool_name }),
        frame.id,
        (call) => ({
          ...call,
          input: frame.tool_input,
          phase: "running",
          preview: NO_TEXT,
          approval: null,
          isGranted: Boolean(frame.grant_id),
        }),
        () => newCall(frame.id, frame.tool_name, frame.tool_input),
      );
    case "tool_output":
      return withCall(run, frame.call_id, (call) => ({
        ...call,
        preview: extended(call.preview, frame.offset, frame.chunk),
      }));
    case "tool_result":
      return withCall(
        withMoment(run, { ...moment("returned", frame), call: frame.id, tool: frame.tool_name }),
        frame.id,
        (call) => ({
          ...call,
          phase: "done",
          preview: NO_TEXT,
          output: frame.tool_output,
          attachments: frame.attachments ?? [],
          approval: null,
        }),
        () => newCall(frame.id, frame.tool_name, "{}"),
      );
    case "approval_required":
      return withCall(
        withMoment(run, { ...moment("asked", frame), call: frame.call_id, tool: frame.tool_name }),
        frame.call_id,
        (call) => ({
          ...call,
          // A tool that asks a question was called already, with its own arguments.
          input: frame.kind === "question" ? call.input : frame.tool_input,
          phase: "asked",
          approval: frame,
          verdict: null,
        }),
        () => newCall(frame.call_id, frame.tool_name, frame.tool_input),
      );
    case "vote_cast":
    case "vote_withdrawn":
    case "review_extended":
      return withCall(run, frame.call_id, (call) => ({
        ...call,
        approval: call.approval && afterVoting(call.approval, frame),
      }));
    case "approved":
    case "rejected":
      return decided(run, frame, moment(frame.name === "approved" ? "approved" : "refused", frame));
    case "steered":
      return withSteering(run, frame.message_id, frame.content);
    case "steering_delivered":
      return {
        ...run,
        steps: run.steps.map((step) =>
          step.kind === "steered" && frame.message_ids.includes(step.id)
            ? { ...step, isDelivered: true }
            : step,
        ),
      };
    case "stopping":
      return { ...run, isStopping: true };
    case "cancelled":
      return withPartialAnswer({ ...run, status: "CANCELLED" });
    case "error":
      return { ...run, error: frame };
    case "feedback_given": {
      const { rating, note } = frame;
      return { ...run, feedback: rating ? { rating, note: note ?? null } : null };
    }
    case "interaction_complete":
      return {
        ...withPartialAnswer(withMoment(run, moment("ended", { at: frame.at }))),
        status: frame.status,
        queued: false,
        isStopping: false,
        usage: frame.usage,
        cost: frame.cost ?? null,
      };
  }
}

function started(run: Run, frame: FrameOf<"interaction_started">): Run {
  const waited = run.moments.filter((known) => known.what === "queued");
  return {
    ...run,
    parent: frame.parent_id,
    message: frame.user_message ?? run.message,
    agent: frame.agent ?? run.agent,
    status: "RUNNING",
    queued: false,
    isStopping: false,
    createdAt: frame.created_at,
    steps: [],
    preview: null,
    error: null,
    moments: [...waited, moment("started", frame)],
    isPlaceholder: false,
  };
}

/** The run with what the user said to it, once. */
export function withSteering(run: Run, id: string, text: string): Run {
  if (run.steps.some((step) => step.kind === "steered" && step.id === id)) return run;
  return { ...run, steps: [...run.steps, { kind: "steered", id, text, isDelivered: false }] };
}

/** Keeps the text so far of a run that was stopped, and marks it as withPartialAnswer. */
function withPartialAnswer(run: Run): Run {
  const text = run.preview?.answer.text ?? "";
  if (text === "") return { ...run, preview: null };
  return { ...run, steps: [...run.steps, { kind: "answer", text, isCut: true }], preview: null };
}

/** The approval after one of those who decide voted, or after its time was over. */
function afterVoting(
  approval: ApprovalRequest,
  frame: FrameOf<"vote_cast" | "vote_withdrawn" | "review_extended">,
): ApprovalRequest {
  const { missing } = frame;
  if (frame.name === "review_extended") {
    const { audience, expires_at } = frame;
    const review = approval.review ?? NEW_REVIEW;
    return { ...approval, expires_at, review: { ...review, audience, missing } };
  }
  if (!approval.review) return approval;
  const votes = approval.review.votes.filter((vote) => vote.voter !== frame.voter);
  if (frame.name === "vote_cast") {
    const { voter, voter_name, approved, message, at } = frame;
    votes.push({ voter, voter_name, approved, message: message ?? null, at, right: "" });
  }
  return { ...approval, review: { ...approval.review, votes, missing } };
}

/** Of an approval that its requester did not decide in time, and that is a group's now. */
const NEW_REVIEW: ReviewView = {
  audience: { roles: [], groups: [], users: [] },
  quorum: 1,
  not_requester: false,
  on_expiry: "deny",
  share_conversation: false,
  votes: [],
  missing: 1,
};

function decided(run: Run, frame: FrameOf<"approved" | "rejected">, when: Moment): Run {
  const approved = frame.name === "approved";
  return withCall(
    withMoment(run, { ...when, call: frame.call_id, tool: frame.tool_name }),
    frame.call_id,
    (call) => ({
      ...call,
      phase: phaseAfter(call, approved),
      input: frame.edited_arguments ? JSON.stringify(frame.edited_arguments) : call.input,
      approval: null,
      verdict: {
        approved,
        by: frame.by,
        decidedBy: frame.decided_by_name ?? frame.decided_by,
        message: frame.message ?? null,
        edited: frame.edited_arguments ?? null,
        choice: frame.choice ?? null,
        answer: frame.answer,
      },
    }),
    () => newCall(frame.call_id, frame.tool_name, "{}"),
  );
}

/** A tool that asked a question continues after any answer. */
function phaseAfter(call: CallStep, approved: boolean): CallStep["phase"] {
  if (call.approval?.kind === "question") return "running";
  return approved ? "decided" : "refused";
}

function withCall(
  run: Run,
  id: string,
  change: (call: CallStep) => CallStep,
  make?: () => CallStep,
): Run {
  const at = run.steps.findIndex((step) => step.kind === "call" && step.id === id);
  const known = run.steps[at];
  if (known?.kind === "call") {
    const steps = [...run.steps];
    steps[at] = change(known);
    return { ...run, steps };
  }
  // The first frame of a call ends its round: the preview was not an answer.
  return make ? { ...run, steps: [...run.steps, change(make())], preview: null } : run;
}

/** A preview with one more piece. A new round or attempt, or offset zero, starts a new text. */
function withPiece(preview: Preview | null, delta: Piece): Preview {
  const kind = delta.name === "answer_delta" ? "answer" : "thinking";
  const { round, attempt } = delta;
  const base = isSame(preview, delta)
    ? preview
    : { round, attempt, thinking: NO_TEXT, answer: NO_TEXT };
  const known = delta.offset === 0 ? NO_TEXT : base[kind];
  return { ...base, [kind]: extended(known, known.length, delta.content) };
}

/** The text with a piece at its offset; the piece replaces what was there. */
function extended({ text, length }: PartialText, offset: number, piece: string): PartialText {
  const kept = offset < length ? [...text].slice(0, offset).join("") : text;
  return { text: kept + piece, length: offset + [...piece].length };
}

/** Whether a piece is missing before this one. */
export function hasGap(preview: Preview | null, delta: Piece): boolean {
  const kind = delta.name === "answer_delta" ? "answer" : "thinking";
  const known = isSame(preview, delta) ? preview[kind].length : 0;
  return delta.offset !== 0 && delta.offset !== known;
}

function isSame(preview: Preview | null, { round, attempt }: Piece): preview is Preview {
  return preview !== null && preview.round === round && preview.attempt === attempt;
}

interface Dated {
  at: string;
  usage?: UsageView | null;
  cost?: CostView | null;
}

function moment(what: Moment["what"], { at, usage, cost }: Dated): Moment {
  const found: Moment = { what, at: Date.parse(at) };
  if (usage) found.usage = usage;
  if (cost) found.cost = cost;
  return found;
}

function withMoment(run: Run, moment: Moment): Run {
  return { ...run, moments: [...run.moments, moment] };
}
