/** The visible conversation as a Markdown document. */
import { formattedJson } from "../text/json";
import { t } from "../text/language";
import { cutText, type CallStep, type Run, type SteeredStep } from "./run";
import type { ChatSession } from "./session";

export function asMarkdown(session: ChatSession): string {
  const runs = session.visible
    .peek()
    .map((id) => session.get(id))
    .filter((run) => run !== undefined);
  return [`# ${session.title.peek() || t("Chat")}`, ...runs.map(section)].join("\n\n") + "\n";
}

function section(run: Run): string {
  const parts = [
    `## ${t("User, {when}", { when: run.createdAt })}`,
    run.message,
    `## ${run.agent}`,
  ];
  for (const step of run.steps) {
    if (step.kind === "thought") parts.push(quoted(`*${t("Thinking:")}* ${step.text}`));
    else if (step.kind === "call") parts.push(call(step));
    else if (step.kind === "remark") parts.push(step.text);
    else if (step.kind === "steered") parts.push(quoted(saidMeanwhile(step)));
    else parts.push(step.text + (step.isCut ? `\n\n*${cutText(step)}*` : ""));
  }
  if (run.error) parts.push(`**${t("Failed:")}** ${run.error.message} (\`${run.error.code}\`)`);
  if (run.feedback) {
    const { rating, note } = run.feedback;
    const rated = rating === "up" ? t("Rated as good") : t("Rated as bad");
    parts.push(`*${rated}*${note ? `: ${note}` : ""}`);
  }
  return parts.join("\n\n");
}

function call(step: CallStep): string {
  const parts = [`**${t("Tool")}** \`${step.tool}\``, fenced("json", formattedJson(step.input))];
  if (step.verdict) {
    const { approved, by, decidedBy, message } = step.verdict;
    const who = by === "human" ? (decidedBy ?? t("a user")) : by;
    const verdict = approved ? t("Approved by {who}", { who }) : t("Refused by {who}", { who });
    parts.push(`${verdict}${message ? `: ${message}` : ""}`);
  }
  if (step.output !== null) parts.push(fenced("", step.output));
  return parts.join("\n\n");
}

function saidMeanwhile(step: SteeredStep): string {
  const who = step.isDelivered ? t("User, meanwhile:") : t("User, meanwhile (not delivered):");
  return `**${who}** ${step.text}`;
}

const quoted = (text: string): string => text.replace(/^/gm, "> ");

/** A fence that nothing inside can close. */
function fenced(language: string, text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((match) => match[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}
