/** One interaction as the page knows it. Immutable: each change makes a new one. */
import type {
  AnswerEvent,
  ApprovalView,
  AttachmentView,
  CostView,
  DecisionView,
  ErrorView,
  FeedbackView,
  InteractionStatus,
  InteractionView,
  ItemView,
  SteeringView,
  ThinkingEvent,
  UsageView,
} from "../api/schema";
import { t } from "../text/language";

export type ApprovalRequest = Pick<
  ApprovalView,
  | "approval_id"
  | "kind"
  | "call_id"
  | "tool_name"
  | "tool_input"
  | "digest"
  | "expires_at"
  | "choices"
  | "schema"
  | "late_result"
  | "budget"
  | "preview"
  | "preview_table"
  | "preview_picture"
  | "redacted"
  | "reason_required"
  | "review"
>;

export interface Verdict {
  approved: boolean;
  by: DecisionView["by"];
  decidedBy: string | null;
  message: string | null;
  edited: Record<string, unknown> | null;
  choice: string | null;
  /** The answer to a question of the tool. */
  answer: unknown;
}

export interface ThoughtStep {
  kind: "thought";
  text: string;
}

export interface CallStep {
  kind: "call";
  id: string;
  tool: string;
  input: string;
  phase: "asked" | "decided" | "running" | "done" | "refused";
  /** Its output while it runs; only the result is kept. */
  preview: PartialText;
  output: string | null;
  /** What it returned beside its text. */
  attachments: AttachmentView[];
  approval: ApprovalRequest | null;
  verdict: Verdict | null;
  /** A standing approval has allowed it. */
  isGranted: boolean;
}

/** What the model said to the user before it called tools. */
export interface RemarkStep {
  kind: "remark";
  text: string;
}

export interface AnswerStep {
  kind: "answer";
  text: string;
  isCut: boolean;
  /** Why, if it was not a person who stopped it. */
  cutBy?: "length" | "content_filter";
}

/** What the user said while the agent worked. */
export interface SteeredStep {
  kind: "steered";
  id: string;
  text: string;
  /** Whether a call of the model got it. */
  isDelivered: boolean;
}

export function cutText({ cutBy }: AnswerStep): string {
  switch (cutBy) {
    case "length":
      return t("Cut short: the model reached its bound on tokens.");
    case "content_filter":
      return t("Cut short: the provider’s content filter stopped it.");
    case undefined:
      return t("Stopped here.");
  }
}

/** The step of an answer that is stored; it may still not be complete. */
export function wholeAnswer(event: Pick<AnswerEvent, "content" | "finish_reason">): AnswerStep {
  const step = { kind: "answer" as const, text: event.content };
  const reason = event.finish_reason;
  return reason ? { ...step, isCut: true, cutBy: reason } : { ...step, isCut: false };
}

export function thoughtOf(
  event: Pick<ThinkingEvent, "content" | "spoken">,
): ThoughtStep | RemarkStep {
  return { kind: event.spoken ? "remark" : "thought", text: event.content };
}

export type Step = ThoughtStep | RemarkStep | CallStep | AnswerStep | SteeredStep;

/** The text of a model that is not finished yet. */
export interface Preview {
  round: number;
  attempt: number;
  thinking: PartialText;
  answer: PartialText;
}

/** A text and its length as the server counts it: in code points. */
export interface PartialText {
  text: string;
  length: number;
}

export const NO_TEXT: PartialText = { text: "", length: 0 };

/** An event with its time, for the timeline. */
export interface Moment {
  what:
    | "queued"
    | "started"
    | "model"
    | "asked"
    | "approved"
    | "refused"
    | "called"
    | "returned"
    | "ended";
  at: number;
  call?: string;
  tool?: string;
  /** What the model's round took that ended here, or the tool itself. */
  usage?: UsageView;
  cost?: CostView;
}

export interface Run {
  id: string;
  parent: string | null;
  message: string;
  items: ItemView[];
  agent: string;
  status: InteractionStatus;
  queued: boolean;
  /** It ends after the step that is at work. */
  isStopping: boolean;
  createdAt: string;
  usage: UsageView | null;
  /** Known only if the model has a price. */
  cost: CostView | null;
  error: ErrorView | null;
  /** What the user thinks of the answer. */
  feedback: Pick<FeedbackView, "rating" | "note"> | null;
  steps: readonly Step[];
  preview: Preview | null;
  moments: readonly Moment[];
  /** Its message and its place in the tree are not known yet. */
  isPlaceholder: boolean;
}

export function placeholderRun(id: string): Run {
  return {
    id,
    parent: null,
    message: "",
    items: [],
    agent: "",
    status: "RUNNING",
    queued: false,
    isStopping: false,
    createdAt: new Date().toISOString(),
    usage: null,
    cost: null,
    error: null,
    feedback: null,
    steps: [],
    preview: null,
    moments: [],
    isPlaceholder: true,
  };
}

export function runOf(view: InteractionView): Run {
  return {
    ...placeholderRun(view.id),
    parent: view.parent_id,
    message: view.user_message,
    items: view.items,
    agent: view.agent,
    createdAt: view.created_at,
    status: view.status === "WAITING_APPROVAL" ? "RUNNING" : view.status,
    usage: view.usage,
    cost: view.cost,
    error: view.error,
    isStopping: view.stopping,
    feedback: view.feedback,
    steps: stepsOf(view),
    isPlaceholder: false,
  };
}

export const statusText = ({ status }: Run): string =>
  ({
    RUNNING: t("running"),
    WAITING_APPROVAL: t("needs approval"),
    COMPLETED: t("completed"),
    CANCELLED: t("cancelled"),
    FAILED: t("failed"),
  })[status];

export const isOver = (run: Run): boolean => run.status !== "RUNNING";

export const isWaiting = (step: Step): step is CallStep =>
  step.kind === "call" && step.phase === "asked" && step.approval !== null;

export const waitingCalls = (run: Run): CallStep[] => run.steps.filter(isWaiting);

export const answerOf = (run: Run): string =>
  run.steps.findLast((step) => step.kind === "answer")?.text ?? "";

export function newCall(id: string, tool: string, input: string, isGranted = false): CallStep {
  return {
    kind: "call",
    id,
    tool,
    input,
    phase: "running",
    preview: NO_TEXT,
    output: null,
    attachments: [],
    approval: null,
    verdict: null,
    isGranted,
  };
}

function steeredOf(view: SteeringView): SteeredStep {
  return {
    kind: "steered",
    id: view.message_id,
    text: view.content,
    isDelivered: view.delivered,
  };
}

function stepsOf(view: InteractionView): Step[] {
  const steps: Step[] = [];
  const said = (wasSaid: (after: number) => boolean): Step[] =>
    view.steering.filter((one) => wasSaid(one.after_events)).map(steeredOf);
  for (const [at, event] of view.agent_events.entries()) {
    steps.push(...said((after) => after === at));
    if (event.type === "TOOL_CALL") {
      steps.push(newCall(event.id, event.tool_name, event.tool_input, Boolean(event.grant_id)));
    } else if (event.type === "TOOL_RESULT") {
      const at = steps.findIndex((step) => step.kind === "call" && step.id === event.id);
      const call = steps[at];
      if (call?.kind === "call") {
        steps[at] = {
          ...call,
          phase: "done",
          output: event.tool_output,
          attachments: event.attachments ?? [],
        };
      }
    } else if (event.type === "THINKING") {
      steps.push(thoughtOf(event));
    } else if (event.type === "ANSWER") {
      steps.push(wholeAnswer(event));
    }
  }
  steps.push(...said((after) => after >= view.agent_events.length));
  if (view.partial) steps.push({ kind: "answer", text: view.partial, isCut: true });
  for (const approval of view.approvals) {
    const at = steps.findIndex((step) => step.kind === "call" && step.id === approval.call_id);
    const known = steps[at];
    const base =
      known?.kind === "call"
        ? known
        : newCall(approval.call_id, approval.tool_name, approval.tool_input);
    const call: CallStep = { ...base, phase: "asked", approval };
    if (at < 0) steps.push(call);
    else steps[at] = call;
  }
  return steps;
}
