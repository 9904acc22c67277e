/** Sends a message, again and again until it arrives; the server takes it once. */
import { signal } from "@preact/signals";

import * as server from "../api/endpoints";
import { frameOf } from "../api/frames";
import { randomId, ServerProblem, Unreachable, errorText } from "../api/request";
import type { Item } from "../api/schema";
import { FrameParser } from "../api/sse";
import { t } from "../text/language";
import type { Run } from "./run";
import type { ChatSession } from "./session";

export interface NewMessage {
  text: string;
  items: Item[];
  key: string;
}

export interface Outgoing {
  text: string;
  items: Item[];
  /** The run that this message replaces, or null for a new message. */
  replaces: string | null;
  state: "sending" | "retrying";
}

const RETRY_MS = 1_000;
const TIMEOUT_MS = 30_000;
/** The server reads PDFs before it answers. */
const PDF_TIMEOUT_MS = 300_000;
const ITEMS_OF = (items: Item[]) => items.map((item) => ({ ...item, name: item.name ?? null }));

export class MessageSender {
  /** The message that is being sent. The page shows it, and sends nothing else until it is done. */
  readonly outgoing = signal<Outgoing | null>(null);
  readonly problem = signal("");
  private giveUp = new AbortController();

  constructor(private readonly session: ChatSession) {}

  /** Whether it arrived. While a run is active the message waits in the queue. */
  send(message: NewMessage, agent: string): Promise<boolean> {
    const { session } = this;
    const body = {
      user_message: message.text,
      items: message.items,
      on_disconnect: "continue" as const,
      // Always the same: a repeated request must be the same to the last byte.
      on_busy: "enqueue" as const,
      ...(session.phase.peek() === "new" && agent ? { agent } : {}),
    };
    return this.post(
      { text: message.text, items: message.items, replaces: null, state: "sending" },
      (signal) => server.start(session.id, body, message.key, signal),
      () => ({
        message: message.text,
        items: ITEMS_OF(message.items),
        agent: agent || session.agent.peek(),
        parent: session.head.peek(),
      }),
      agent,
    );
  }

  /** Replace an earlier message with another text; without a text, answer the same one again. */
  replaceMessage(run: Run, text: string | null, agent = run.agent): Promise<boolean> {
    const { session } = this;
    const key = randomId();
    const interrupting = {
      on_busy: session.active.peek() ? ("interrupt" as const) : ("reject" as const),
      on_disconnect: "continue" as const,
    };
    return this.post(
      { text: text ?? run.message, items: run.items, replaces: run.id, state: "sending" },
      (signal) =>
        text === null
          ? server.regenerate(session.id, run.id, interrupting, key, signal)
          : server.edit(
              session.id,
              run.id,
              {
                new_user_message: text,
                items: run.items,
                ...(agent === run.agent ? {} : { agent }),
                ...interrupting,
              },
              key,
              signal,
            ),
      () => ({
        message: text ?? run.message,
        items: run.items,
        agent,
        parent: run.parent,
      }),
      agent,
    );
  }

  /** Say something to the run at work: its next step gets it. Whether it arrived. */
  async steer(run: string, message: NewMessage): Promise<boolean> {
    if (this.outgoing.peek()) return false;
    const { session } = this;
    const body = { user_message: message.text };
    try {
      const taken = await this.repeated(
        { text: message.text, items: [], replaces: null, state: "sending" },
        (signal) => server.steer(session.id, run, body, message.key, signal),
      );
      session.addSteering(run, taken.message_id, message.text);
      return true;
    } catch (error) {
      if (!this.giveUp.signal.aborted) this.problem.value = steeringProblem(error);
      return false;
    } finally {
      this.outgoing.value = null;
    }
  }

  /** Stop trying. If the message has arrived nevertheless, the page shows it. */
  abandon(): void {
    this.giveUp.abort();
  }

  private async post(
    outgoing: Outgoing,
    request: (signal: AbortSignal) => Promise<Response>,
    known: () => Partial<Run>,
    agent: string,
  ): Promise<boolean> {
    if (this.outgoing.peek()) return false;
    try {
      const before = known();
      const { id, isQueued } = await this.repeated(outgoing, async (signal) =>
        firstFrame(await request(signal)),
      );
      this.session.begin(agent);
      this.session.addSent(id, { ...before, queued: isQueued });
      return true;
    } catch (error) {
      if (!this.giveUp.signal.aborted) this.problem.value = errorText(error);
      return false;
    } finally {
      this.outgoing.value = null;
    }
  }

  /** What comes of the request; `null` and what may pass are tried again. */
  private async repeated<T>(
    outgoing: Outgoing,
    attempt: (signal: AbortSignal) => Promise<T | null>,
  ): Promise<T> {
    this.outgoing.value = outgoing;
    this.problem.value = "";
    this.giveUp = new AbortController();
    const hasPdf = outgoing.items.some((item) => item.content_type === "pdf");
    for (;;) {
      const reading = new AbortController();
      const late = window.setTimeout(() => reading.abort(), hasPdf ? PDF_TIMEOUT_MS : TIMEOUT_MS);
      this.giveUp.signal.addEventListener("abort", () => reading.abort(), { once: true });
      try {
        const done = await attempt(reading.signal);
        if (done !== null) return done;
      } catch (error) {
        const isLate = reading.signal.aborted && !this.giveUp.signal.aborted;
        if (!isLate && !isWorthRetrying(error)) throw error;
      } finally {
        window.clearTimeout(late);
        // The chat's own stream brings the rest; browsers allow few connections at a time.
        reading.abort();
      }
      this.outgoing.value = { ...outgoing, state: "retrying" };
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      if (this.giveUp.signal.aborted) throw new Unreachable();
    }
  }
}

function steeringProblem(error: unknown): string {
  const isLate = error instanceof ServerProblem && error.status === 409;
  return isLate
    ? t("The agent takes no more for this answer. Send it as the next message.")
    : errorText(error);
}

/** The server cannot be reached, is stopping, or has too much to do. */
function isWorthRetrying(error: unknown): boolean {
  if (error instanceof ServerProblem) return error.status === 503 || error.status === 429;
  return error instanceof Unreachable;
}

/** The run that the message started; null if the stream ended before it named the run. */
async function firstFrame(response: Response): Promise<{ id: string; isQueued: boolean } | null> {
  const reader = response.body?.getReader();
  const parser = new FrameParser();
  while (reader) {
    let piece;
    try {
      piece = await reader.read();
    } catch {
      return null;
    }
    if (piece.done) return null;
    for (const raw of parser.push(piece.value)) {
      const frame = frameOf(raw);
      if (frame?.name === "interaction_started" || frame?.name === "interaction_queued") {
        return { id: frame.interaction_id, isQueued: frame.name === "interaction_queued" };
      }
    }
  }
  return null;
}
