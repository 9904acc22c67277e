/** A chat that is open in this page: loaded once, then kept up to date by its stream. */
import { batch, computed, signal, type Signal } from "@preact/signals";

import * as server from "../api/endpoints";
import type { Place } from "../api/endpoints";
import { follow, type LinkState } from "../api/follow";
import type { Frame } from "../api/frames";
import { ServerProblem, Unreachable, errorText } from "../api/request";
import type { ChatView } from "../api/schema";
import { folded, hasGap, withSteering } from "./fold";
import { waitingCalls, isOver, runOf, placeholderRun, type Run } from "./run";
import { versions, pathTo, type Runs } from "./tree";

export type Phase = "new" | "loading" | "open" | "gone" | "failed";

/** So many events of the log are read again at the start: they say more than the chat's view. */
const REPLAYED_EVENTS = 2_000;
const RETRY_MS = 1_000;

export class ChatSession implements Runs {
  readonly phase = signal<Phase>("new");
  readonly link = signal<LinkState>("live");
  readonly title = signal("");
  readonly agent = signal("");
  readonly problem = signal("");
  readonly place = signal<Place>("list");
  readonly isPinned = signal(false);
  readonly tags = signal<readonly string[]>([]);
  readonly head = signal<string | null>(null);
  /** The cursor of the interactions that are older than all of these. */
  readonly older = signal<string | null>(null);

  private readonly runs = new Map<string, Signal<Run>>();
  /** Changes whenever the tree does. */
  private readonly shape = signal(0);
  private readonly rebuilt = new Set<string>();
  private readonly loading = new Set<string>();
  /** The part before these that is on its way. */
  private part: Promise<ChatView> | null = null;
  private cursor = "0";
  private known = 0;
  private hasGap = false;
  private queue: Frame[] = [];
  private isScheduled = false;
  private stop: (() => void) | null = null;
  private isClosed = false;

  /** The runs that are shown, oldest first; those in the queue come last. */
  readonly visible = computed(() => {
    void this.shape.value;
    const waiting = [...this.all()].filter((run) => run.queued && !run.isPlaceholder);
    return [...pathTo(this, this.head.value), ...waiting.map((run) => run.id)];
  });

  private readonly versions = computed(() => (this.shape.value, versions(this)));

  /** The run that is active, if any. */
  readonly active = computed(() => {
    void this.shape.value;
    for (const run of this.runs.values()) {
      if (!isOver(run.value) && !run.value.queued) return run.value;
    }
    return null;
  });

  /** These two change less often than the run's text. */
  readonly activeId = computed(() => this.active.value?.id ?? null);
  readonly isStopping = computed(() => this.active.value?.isStopping ?? false);
  readonly pendingCount = computed(() => this.pending.value.length);

  readonly pending = computed(() => (this.active.value ? waitingCalls(this.active.value) : []));

  constructor(readonly id: string) {}

  get(id: string): Run | undefined {
    return this.runs.get(id)?.peek();
  }

  *all(): Iterable<Run> {
    for (const run of this.runs.values()) yield run.peek();
  }

  run(id: string): Signal<Run> {
    const known = this.runs.get(id);
    if (known) return known;
    const made = signal(placeholderRun(id));
    this.runs.set(id, made);
    this.treeChanged();
    return made;
  }

  /** The run and the runs that replace it, oldest first. */
  siblings(id: string): string[] {
    const versions = this.versions.value;
    const run = this.get(id);
    return (run && !run.queued && versions.get(run.parent)) || [id];
  }

  async open(): Promise<void> {
    this.phase.value = "loading";
    while (!this.isClosed) {
      try {
        this.install(await server.chat(this.id));
        this.listen();
        return;
      } catch (error) {
        if (!this.mayRetry(error)) return;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  /** Go on after a pause. A chat that is not loaded yet goes on by itself. */
  async resume(): Promise<void> {
    const phase = this.phase.peek();
    if (phase === "open") this.listen();
    else if (phase === "gone" || phase === "failed") await this.open();
  }

  /** A new chat exists on the server now: read it from its beginning. */
  begin(agent: string): void {
    if (this.stop) return;
    this.agent.value = agent;
    this.phase.value = "open";
    this.listen();
  }

  close(): void {
    this.isClosed = true;
    this.pause();
  }

  /** Close the connection; `listen` continues at the same place. */
  pause(): void {
    this.stop?.();
    this.stop = null;
  }

  listen(): void {
    if (this.stop || this.isClosed) return;
    this.stop = follow(server.eventsPath(this.id), {
      cursor: () => this.cursor,
      take: (frames) => this.take(frames),
      state: (state) => {
        this.link.value = state;
        if (state === "live") this.hasGap = false;
      },
      ended: (reason) => this.ended(reason),
    });
  }

  /** Add what the sender of a message knows before the stream brings it. */
  addSent(id: string, known: Partial<Run>): void {
    batch(() => {
      const run = this.run(id);
      if (!run.peek().isPlaceholder) return;
      run.value = { ...run.peek(), ...known, isPlaceholder: false };
      if (!run.peek().queued) this.head.value = id;
      this.treeChanged();
    });
  }

  /** Add what was said to a run at work before the stream brings it. */
  addSteering(id: string, message: string, text: string): void {
    const run = this.run(id);
    run.value = withSteering(run.peek(), message, text);
  }

  /** What the user thinks of an answer; the stream says it too, a little later. */
  setFeedback(id: string, feedback: Run["feedback"]): void {
    const run = this.run(id);
    run.value = { ...run.peek(), feedback };
  }

  async loadOlder(): Promise<void> {
    const before = this.older.peek();
    if (!before) return;
    this.part ??= server.chat(this.id, before).finally(() => (this.part = null));
    const view = await this.part;
    // Another caller has waited for the same part.
    if (this.older.peek() !== before) return;
    batch(() => {
      const cut = this.visible.peek()[0];
      this.add(view, before);
      const last = view.interactions.findLast((entry) => !entry.superseded);
      const first = cut ? this.runs.get(cut) : undefined;
      if (first && last) first.value = { ...first.peek(), parent: last.id };
      this.treeChanged();
    });
  }

  async loadAll(): Promise<void> {
    while (this.older.peek()) await this.loadOlder();
  }

  /** Load the text so far of a stopped run; its frames do not contain it. */
  async loadPartial(id: string): Promise<void> {
    if (this.loading.has(`cut ${id}`)) return;
    this.loading.add(`cut ${id}`);
    try {
      const view = await server.readInteraction(this.id, id);
      const text = view.partial;
      const run = this.run(id);
      if (!text || run.peek().steps.some((step) => step.kind === "answer")) return;
      const steps = [...run.peek().steps, { kind: "answer" as const, text, isCut: true }];
      run.value = { ...run.peek(), steps };
    } catch {
      this.loading.delete(`cut ${id}`);
    }
  }

  private install(view: ChatView): void {
    batch(() => {
      this.runs.clear();
      this.rebuilt.clear();
      // Frames that are not shown yet may come from a log that was replaced.
      this.queue = [];
      this.add(view, "");
      this.title.value = view.title;
      this.agent.value = view.agent;
      this.place.value = view.place;
      this.isPinned.value = view.pinned;
      this.tags.value = view.tags;
      const shown = view.interactions.filter((entry) => !entry.superseded);
      this.head.value = shown.findLast((entry) => !this.get(entry.id)?.queued)?.id ?? null;
      this.known = view.last_seq;
      this.cursor = String(Math.max(0, view.last_seq - REPLAYED_EVENTS));
      this.phase.value = "open";
      this.problem.value = "";
      this.treeChanged();
    });
  }

  private add(view: ChatView, part: string): void {
    for (const entry of view.interactions) {
      const run = runOf(entry);
      // The first run of a page does not name its parent: it must not look like the root.
      if (view.next && run.parent === null) run.parent = `before ${part}`;
      this.runs.set(entry.id, signal(run));
    }
    this.older.value = view.next;
  }

  private take(frames: Frame[]): void {
    for (const frame of frames) if (frame.eventId) this.cursor = frame.eventId;
    this.queue.push(...frames);
    if (this.isScheduled) return;
    this.isScheduled = true;
    // A hidden page has no animation frames.
    if (document.hidden) setTimeout(() => this.flush(), 50);
    else {
      const paint = requestAnimationFrame(() => this.flush());
      setTimeout(() => this.isScheduled && (cancelAnimationFrame(paint), this.flush()), 200);
    }
  }

  private flush(): void {
    this.isScheduled = false;
    const frames = this.queue;
    this.queue = [];
    batch(() => frames.forEach((frame) => this.apply(frame)));
  }

  private apply(frame: Frame): void {
    if (frame.name === "chat_changed") {
      this.title.value = frame.title ?? "";
      return;
    }
    if (frame.name === "branch_changed") {
      this.head.value = frame.interaction_id ?? null;
      this.treeChanged();
      return;
    }
    if (frame.name === "stream_end" || !frame.interaction_id) return;
    const isPast = frame.seq > 0 && frame.seq <= this.known;
    const begins = frame.name === "interaction_started" || frame.name === "interaction_queued";
    if (isPast && begins) this.rebuilt.add(frame.interaction_id);
    if (isPast && !this.rebuilt.has(frame.interaction_id)) return;
    const run = this.run(frame.interaction_id);
    const isPiece = frame.name === "answer_delta" || frame.name === "thinking_delta";
    if (isPiece && (this.hasGap || hasGap(run.peek().preview, frame))) return this.reconnect();
    const isNew = begins && run.peek().isPlaceholder;
    run.value = folded(run.peek(), frame);
    if (begins) this.began(frame.interaction_id, isPast, isNew);
    if (frame.name === "interaction_complete") this.treeChanged();
  }

  private began(id: string, isPast: boolean, isNew: boolean): void {
    const run = this.run(id).peek();
    if (!run.agent) this.run(id).value = { ...run, agent: this.agent.peek() };
    if (!isPast && !run.queued) this.head.value = id;
    if (isNew) void this.loadItems(id);
    this.treeChanged();
  }

  /** Load the attachments of a message; the stream does not contain them. */
  private async loadItems(id: string): Promise<void> {
    try {
      const { items } = await server.readInteraction(this.id, id);
      const run = this.run(id);
      if (items.length) run.value = { ...run.peek(), items };
    } catch {
      // The message is shown; its attachments come with the next load.
    }
  }

  /** A new connection receives the text so far, which fills the gap. */
  private reconnect(): void {
    if (this.hasGap) return;
    this.hasGap = true;
    this.pause();
    this.listen();
  }

  private ended(reason: "deleted" | "rewound" | "refused"): void {
    this.stop = null;
    if (reason === "deleted") this.phase.value = "gone";
    else if (reason === "rewound") void this.open();
  }

  private mayRetry(error: unknown): boolean {
    if (error instanceof Unreachable) {
      this.link.value = "waiting";
      return true;
    }
    const isGone = error instanceof ServerProblem && error.status === 404;
    this.phase.value = isGone ? "gone" : "failed";
    this.problem.value = errorText(error);
    return false;
  }

  private treeChanged(): void {
    this.shape.value = this.shape.peek() + 1;
  }
}
