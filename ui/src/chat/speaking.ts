/** Saying something: sent as often as it takes, taken in once. */
import { signal } from "@preact/signals";

import * as server from "../api/endpoints";
import { frameOf } from "../api/frames";
import { randomId, ServerProblem, Unreachable, wordsFor } from "../api/request";
import type { Item } from "../api/schema";
import { FrameParser } from "../api/sse";
import type { Run } from "./run";
import type { ChatSession } from "./session";

export interface Utterance {
  text: string;
  items: Item[];
  key: string;
}

export interface Outgoing {
  text: string;
  items: Item[];
  /** The run in whose place this is said, or null for a new message. */
  instead: string | null;
  state: "sending" | "retrying";
}

const RETRY_MS = 1_000;
const PATIENCE_MS = 30_000;
const ITEMS_OF = (items: Item[]) => items.map((item) => ({ ...item, name: item.name ?? null }));

export class Voice {
  /** What is on its way: the page shows it, and takes nothing else meanwhile. */
  readonly outgoing = signal<Outgoing | null>(null);
  readonly problem = signal("");
  private giveUp = new AbortController();

  constructor(private readonly session: ChatSession) {}

  /** Whether it arrived. With a run under way it waits for its turn. */
  say(said: Utterance, agent: string): Promise<boolean> {
    const { session } = this;
    const body = {
      user_message: said.text,
      items: said.items,
      on_disconnect: "continue" as const,
      // Always the same: a repeated request must be the same to the last byte.
      on_busy: "enqueue" as const,
      ...(session.phase.peek() === "new" && agent ? { agent } : {}),
    };
    return this.post(
      { text: said.text, items: said.items, instead: null, state: "sending" },
      (signal) => server.start(session.id, body, said.key, signal),
      () => ({
        message: said.text,
        items: ITEMS_OF(said.items),
        agent: agent || session.agent.peek(),
        parent: session.head.peek(),
      }),
      agent,
    );
  }

  /** Say something else in the place of an earlier message; with no text, the same again. */
  sayInstead(run: Run, text: string | null): Promise<boolean> {
    const { session } = this;
    const key = randomId();
    const interrupting = {
      on_busy: session.active.peek() ? ("interrupt" as const) : ("reject" as const),
      on_disconnect: "continue" as const,
    };
    return this.post(
      { text: text ?? run.message, items: run.items, instead: run.id, state: "sending" },
      (signal) =>
        text === null
          ? server.regenerate(session.id, run.id, interrupting, key, signal)
          : server.edit(
              session.id,
              run.id,
              { new_user_message: text, items: run.items, ...interrupting },
              key,
              signal,
            ),
      () => ({
        message: text ?? run.message,
        items: run.items,
        agent: run.agent,
        parent: run.parent,
      }),
      run.agent,
    );
  }

  /** Stop trying. It may have arrived all the same; then it shows. */
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
    this.outgoing.value = outgoing;
    this.problem.value = "";
    this.giveUp = new AbortController();
    try {
      const before = known();
      const { id, isQueued } = await this.deliver(outgoing, request);
      this.session.begin(agent);
      this.session.adopt(id, { ...before, queued: isQueued });
      return true;
    } catch (error) {
      if (!this.giveUp.signal.aborted) this.problem.value = wordsFor(error);
      return false;
    } finally {
      this.outgoing.value = null;
    }
  }

  private async deliver(
    outgoing: Outgoing,
    request: (signal: AbortSignal) => Promise<Response>,
  ): Promise<{ id: string; isQueued: boolean }> {
    for (;;) {
      const reading = new AbortController();
      const late = window.setTimeout(() => reading.abort(), PATIENCE_MS);
      this.giveUp.signal.addEventListener("abort", () => reading.abort(), { once: true });
      try {
        const response = await request(reading.signal);
        const first = await firstFrame(response);
        if (first) return first;
      } catch (error) {
        const isLate = reading.signal.aborted && !this.giveUp.signal.aborted;
        if (!isLate && !mayHelpToRepeat(error)) throw error;
      } finally {
        window.clearTimeout(late);
        // The chat's own stream has the rest; browsers allow few connections at a time.
        reading.abort();
      }
      this.outgoing.value = { ...outgoing, state: "retrying" };
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      if (this.giveUp.signal.aborted) throw new Unreachable();
    }
  }
}

/** The server is away, or is about to be, or has too much to do right now. */
function mayHelpToRepeat(error: unknown): boolean {
  if (error instanceof ServerProblem) return error.status === 503 || error.status === 429;
  return error instanceof Unreachable;
}

/** Which run it became; nothing if the stream broke off before it said so. */
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
