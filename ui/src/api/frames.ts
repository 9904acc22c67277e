/** Every frame of a chat's stream, as a closed union made of the server's own description. */
import type { Frames } from "./schema";
import type { RawFrame } from "./sse";

type Named = {
  [Name in keyof Frames]: Frames[Name] & {
    name: Name;
    /** A stream can continue after it; empty for a preview. */
    eventId: string;
    /** Its place in the log; 0 for a preview. */
    seq: number;
  };
};

export type Frame = Named[keyof Named];
export type FrameOf<Name extends keyof Named> = Named[Name];

/** Frames that are about one interaction. */
export type RunFrame = Exclude<
  Frame,
  FrameOf<"branch_changed"> | FrameOf<"chat_changed"> | FrameOf<"stream_end">
>;

/** Of these, the ones that are in the log. */
export type StoredFrame = Exclude<
  RunFrame,
  FrameOf<"answer_delta"> | FrameOf<"thinking_delta"> | FrameOf<"tool_output">
>;

const KNOWN: Record<keyof Frames, true> = {
  interaction_queued: true,
  interaction_started: true,
  thinking: true,
  answer: true,
  answer_delta: true,
  thinking_delta: true,
  tool_call: true,
  tool_output: true,
  tool_result: true,
  approval_required: true,
  vote_cast: true,
  vote_withdrawn: true,
  review_extended: true,
  approved: true,
  rejected: true,
  steered: true,
  steering_delivered: true,
  stopping: true,
  cancelled: true,
  error: true,
  interaction_complete: true,
  branch_changed: true,
  chat_changed: true,
  feedback_given: true,
  stream_end: true,
};

/** The frame; null for a kind that only a newer server sends. */
export function frameOf(raw: RawFrame): Frame | null {
  if (!(raw.event in KNOWN)) return null;
  const payload: unknown = JSON.parse(raw.data);
  // An id begins with the place in the log; the rest is the server's checksum of the event.
  const seq = parseInt(raw.id || "0", 10);
  return { ...(payload as object), name: raw.event, eventId: raw.id, seq } as Frame;
}
