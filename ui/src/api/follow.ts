/** Reads a chat's log until it is stopped, and reconnects after every interruption.
 *
 * The next connection starts after the last event that was received, so each event arrives once. A
 * connection that is silent for longer than the server's keepalives allow is dead, even if the
 * browser has not noticed: this happens when a laptop wakes up.
 */
import { type Frame, frameOf } from "./frames";
import { send, ServerProblem } from "./request";
import { FrameParser } from "./sse";

export type LinkState = "connecting" | "live" | "waiting";

export interface Follower {
  /** The id of the event after which to continue. */
  cursor(): string;
  take(frames: Frame[]): void;
  state(state: LinkState): void;
  /** The log was deleted or replaced: no more events will come. */
  ended(reason: "deleted" | "rewound" | "refused"): void;
}

const SILENCE_MS = 40_000;
/** A running server answers sooner. */
const OPENING_MS = 8_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 4_000;

export function follow(path: string, follower: Follower): () => void {
  const ending = new AbortController();
  void keepFollowing(path, follower, ending.signal);
  return () => ending.abort();
}

async function keepFollowing(path: string, follower: Follower, ending: AbortSignal): Promise<void> {
  let pause = FIRST_PAUSE_MS;
  while (!ending.aborted) {
    follower.state("connecting");
    const connection = new Connection(ending);
    try {
      const response = await connection.open(path, follower.cursor());
      follower.state("live");
      for await (const frames of connection.frames(response)) {
        if (ending.aborted) return;
        pause = FIRST_PAUSE_MS;
        const last = frames.find((frame) => frame.name === "stream_end");
        follower.take(frames);
        if (last?.name === "stream_end" && last.reason === "deleted") {
          return follower.ended("deleted");
        }
      }
    } catch (error) {
      const reason = finalReason(error);
      if (reason && !ending.aborted) return follower.ended(reason);
    } finally {
      connection.close();
    }
    if (ending.aborted) return;
    follower.state("waiting");
    await wake(pause * (0.75 + Math.random() / 2), ending);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

function finalReason(error: unknown): "deleted" | "rewound" | "refused" | null {
  if (!(error instanceof ServerProblem)) return null;
  if (error.status === 404) return "deleted";
  if (error.code === "cursor_ahead" || error.code === "cursor_expired") return "rewound";
  return error.status === 401 || error.status === 403 ? "refused" : null;
}

/** One attempt, watched for silence. */
class Connection {
  private readonly abort = new AbortController();
  private readonly watch: number;
  private heard = Date.now();

  constructor(ending: AbortSignal) {
    ending.addEventListener("abort", () => this.abort.abort(), { signal: this.abort.signal });
    this.watch = window.setInterval(this.check, SILENCE_MS / 8);
    document.addEventListener("visibilitychange", this.check, { signal: this.abort.signal });
  }

  async open(path: string, cursor: string): Promise<Response> {
    const late = window.setTimeout(() => this.abort.abort(), OPENING_MS);
    try {
      return await send(path, {
        signal: this.abort.signal,
        headers: { Accept: "text/event-stream", "Last-Event-ID": cursor },
      });
    } finally {
      window.clearTimeout(late);
    }
  }

  async *frames(response: Response): AsyncGenerator<Frame[]> {
    const reader = response.body?.getReader();
    const parser = new FrameParser();
    while (reader) {
      const { done, value } = await reader.read();
      this.heard = Date.now();
      if (done) return;
      const found = parser
        .push(value)
        .map(frameOf)
        .filter((frame) => frame !== null);
      if (found.length) yield found;
    }
  }

  close(): void {
    window.clearInterval(this.watch);
    this.abort.abort();
  }

  private readonly check = (): void => {
    if (Date.now() - this.heard > SILENCE_MS) this.abort.abort();
  };
}

/** Waits, but ends early when the network or the user comes back. */
function wake(milliseconds: number, ending: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const over = new AbortController();
    const end = (): void => {
      over.abort();
      window.clearTimeout(timer);
      resolve();
    };
    const timer = window.setTimeout(end, milliseconds);
    const options = { signal: over.signal };
    ending.addEventListener("abort", end, options);
    window.addEventListener("online", end, options);
    document.addEventListener("visibilitychange", end, options);
  });
}
