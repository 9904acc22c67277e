/** The stored events of one run, and the run as it was after each of them. */
import { runEventsPath } from "../api/endpoints";
import { frameOf, type StoredFrame } from "../api/frames";
import { send } from "../api/request";
import { FrameParser } from "../api/sse";
import { folded } from "./fold";
import { placeholderRun, type Run } from "./run";

/** All of them, with their times and what each cost; the run must be over. */
export async function eventsOf(
  chat: string,
  run: string,
  signal: AbortSignal,
): Promise<StoredFrame[]> {
  const headers = { Accept: "text/event-stream" };
  const response = await send(runEventsPath(chat, run), { signal, headers });
  const reader = response.body?.getReader();
  const parser = new FrameParser();
  const found: StoredFrame[] = [];
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    for (const raw of parser.push(value)) {
      const frame = frameOf(raw);
      if (frame && "interaction_id" in frame && frame.seq > 0) found.push(frame as StoredFrame);
    }
  }
  return found;
}

/** The run after the first `count` of its events. */
export const runAfter = (id: string, events: readonly StoredFrame[], count: number): Run =>
  events.slice(0, count).reduce(folded, placeholderRun(id));
