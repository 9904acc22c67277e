/** From frames to runs: a pure function of what the log says and what a model is saying. */
import type { FrameOf, RunFrame } from "../api/frames";
import {
  newCall,
  NOTHING,
  type CallStep,
  type Growing,
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
        isSketch: false,
      };
    case "interaction_started":
      return begun(run, frame);
    case "thinking":
      return {
        ...dated(run, moment("model", frame)),
        steps: [...run.steps, { kind: "thought", text: frame.content }],
        preview: null,
      };
    case "answer":
      return {
        ...dated(run, moment("model", frame)),
        steps: [...run.steps, { kind: "answer", text: frame.content, isCut: false }],
        preview: null,
      };
    case "answer_delta":
    case "thinking_delta":
      return { ...run, preview: said(run.preview, frame) };
    case "tool_call":
      return withCall(
        dated(run, { ...moment("called", frame), call: frame.id, tool: frame.tool_name }),
        frame.id,
        (call) => ({
          ...call,
          input: frame.tool_input,
          phase: "running",
          preview: NOTHING,
          asking: null,
        }),
        () => newCall(frame.id, frame.tool_name, frame.tool_input),
      );
    case "tool_output":
      return withCall(run, frame.call_id, (call) => ({
        ...call,
        preview: grown(call.preview, frame.offset, frame.chunk),
      }));
    case "tool_result":
      return withCall(
        dated(run, { ...moment("returned", frame), call: frame.id, tool: frame.tool_name }),
        frame.id,
        (call) => ({
          ...call,
          phase: "done",
          preview: NOTHING,
          output: frame.tool_output,
          asking: null,
        }),
        () => newCall(frame.id, frame.tool_name, "{}"),
      );
    case "approval_required":
      return withCall(
        dated(run, { ...moment("asked", frame), call: frame.call_id, tool: frame.tool_name }),
        frame.call_id,
        (call) => ({
          ...call,
          // A tool that asks something was called already, with arguments of its own.
          input: frame.kind === "question" ? call.input : frame.tool_input,
          phase: "asked",
          asking: frame,
          verdict: null,
        }),
        () => newCall(frame.call_id, frame.tool_name, frame.tool_input),
      );
    case "approved":
    case "rejected":
      return decided(run, frame, moment(frame.name === "approved" ? "approved" : "refused", frame));
    case "cancelled":
      return cut({ ...run, status: "CANCELLED" });
    case "error":
      return { ...run, error: frame };
    case "interaction_complete":
      return {
        ...cut(dated(run, moment("ended", frame))),
        status: frame.status,
        queued: false,
        usage: frame.usage,
        cost: frame.cost ?? null,
      };
  }
}

function begun(run: Run, frame: FrameOf<"interaction_started">): Run {
  const waited = run.moments.filter((known) => known.what === "queued");
  return {
    ...run,
    parent: frame.parent_id,
    message: frame.user_message ?? run.message,
    agent: frame.agent ?? run.agent,
    status: "RUNNING",
    queued: false,
    createdAt: frame.created_at,
    steps: [],
    preview: null,
    error: null,
    moments: [...waited, moment("started", frame)],
    isSketch: false,
  };
}

/** What was said until a stop is kept, marked as what it is. */
function cut(run: Run): Run {
  const text = run.preview?.answer.text ?? "";
  if (text === "") return { ...run, preview: null };
  return { ...run, steps: [...run.steps, { kind: "answer", text, isCut: true }], preview: null };
}

function decided(run: Run, frame: FrameOf<"approved" | "rejected">, when: Moment): Run {
  const approved = frame.name === "approved";
  return withCall(
    dated(run, { ...when, call: frame.call_id, tool: frame.tool_name }),
    frame.call_id,
    (call) => ({
      ...call,
      phase: phaseAfter(call, approved),
      input: frame.edited_arguments ? JSON.stringify(frame.edited_arguments) : call.input,
      asking: null,
      verdict: {
        approved,
        by: frame.by,
        decidedBy: frame.decided_by,
        message: frame.message ?? null,
        edited: frame.edited_arguments ?? null,
        choice: frame.choice ?? null,
        answer: frame.answer,
      },
    }),
    () => newCall(frame.call_id, frame.tool_name, "{}"),
  );
}

/** A tool that asked goes on, whatever it was told. */
function phaseAfter(call: CallStep, approved: boolean): CallStep["phase"] {
  if (call.asking?.kind === "question") return "running";
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
  // The first sign of a call says that its round is over: it was no answer.
  return make ? { ...run, steps: [...run.steps, change(make())], preview: null } : run;
}

/** A preview with one more piece; a new round or attempt, or a start from zero, voids the old. */
function said(preview: Preview | null, delta: Piece): Preview {
  const kind = delta.name === "answer_delta" ? "answer" : "thinking";
  const { round, attempt } = delta;
  const base = isSame(preview, delta)
    ? preview
    : { round, attempt, thinking: NOTHING, answer: NOTHING };
  const known = delta.offset === 0 ? NOTHING : base[kind];
  return { ...base, [kind]: grown(known, known.length, delta.content) };
}

/** The text with a piece at its place; what stood there is said again. */
function grown({ text, length }: Growing, offset: number, piece: string): Growing {
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

function moment(what: Moment["what"], frame: { at: string }): Moment {
  return { what, at: Date.parse(frame.at) };
}

function dated(run: Run, moment: Moment): Run {
  return { ...run, moments: [...run.moments, moment] };
}
