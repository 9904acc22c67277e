/** The visible conversation as a Markdown document. */
import { formattedJson } from "../text/json";
import { STOPPED, type CallStep, type Run, type SteeredStep } from "./run";
import type { ChatSession } from "./session";

export function asMarkdown(session: ChatSession): string {
  const runs = session.visible
    .peek()
    .map((id) => session.get(id))
    .filter((run) => run !== undefined);
  return [`# ${session.title.peek() || "Chat"}`, ...runs.map(section)].join("\n\n") + "\n";
}

function section(run: Run): string {
  const parts = [`## User, ${run.createdAt}`, run.message, `## ${run.agent}`];
  for (const step of run.steps) {
    if (step.kind === "thought") parts.push(quoted(`*Thinking:* ${step.text}`));
    else if (step.kind === "call") parts.push(call(step));
    else if (step.kind === "remark") parts.push(step.text);
    else if (step.kind === "steered") parts.push(quoted(saidMeanwhile(step)));
    else parts.push(step.text + (step.isCut ? `\n\n*${step.cutNote ?? STOPPED}*` : ""));
  }
  if (run.error) parts.push(`**Failed:** ${run.error.message} (\`${run.error.code}\`)`);
  return parts.join("\n\n");
}

function call(step: CallStep): string {
  const parts = [`**Tool** \`${step.tool}\``, fenced("json", formattedJson(step.input))];
  if (step.verdict) {
    const { approved, by, decidedBy, message } = step.verdict;
    const who = by === "human" ? (decidedBy ?? "a person") : by;
    parts.push(`${approved ? "Approved" : "Refused"} by ${who}${message ? `: ${message}` : ""}`);
  }
  if (step.output !== null) parts.push(fenced("", step.output));
  return parts.join("\n\n");
}

function saidMeanwhile(step: SteeredStep): string {
  return `**User, meanwhile${step.isDelivered ? "" : " (not delivered)"}:** ${step.text}`;
}

const quoted = (text: string): string => text.replace(/^/gm, "> ");

/** A fence that nothing inside can close. */
function fenced(language: string, text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((match) => match[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}
