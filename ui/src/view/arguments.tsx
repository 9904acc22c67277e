/** The arguments of a call, complete.
 *
 * They are always shown as JSON. Code is shown in colours too, and a replacement as a difference.
 */
import { formattedJson, parsedObject } from "../text/json";
import { revealed } from "../text/hidden";
import { t } from "../text/language";
import { Code } from "./code";
import { Difference } from "./difference";
import { LongText } from "./longtext";

const CODE_NAMES: Record<string, string> = {
  code: "python",
  python: "python",
  script: "bash",
  command: "bash",
  cmd: "bash",
  shell: "bash",
  sql: "sql",
  query: "sql",
  javascript: "javascript",
  html: "xml",
};
const PAIRS: [string, string][] = [
  ["old_string", "new_string"],
  ["old_text", "new_text"],
  ["old_str", "new_str"],
  ["old_content", "new_content"],
  ["old", "new"],
  ["before", "after"],
];
const ENDINGS: Record<string, string> = {
  py: "python",
  js: "javascript",
  ts: "typescript",
  json: "json",
  md: "markdown",
  sh: "bash",
  sql: "sql",
  yaml: "yaml",
  yml: "yaml",
  html: "xml",
  css: "css",
  rs: "rust",
  go: "go",
};

export function Arguments({ input, isFull }: { input: string; isFull?: boolean }) {
  const values = parsedObject(input) ?? {};
  const pair = PAIRS.find(([old, next]) => isText(values[old]) && isText(values[next]));
  return (
    <div class="arguments">
      {isFull && pair && (
        <Difference before={String(values[pair[0]])} after={String(values[pair[1]])} />
      )}
      {isFull &&
        !pair &&
        codeOf(values).map(([name, text, language]) => (
          <Code key={name} text={text} language={language} />
        ))}
      <LongText text={formattedJson(input)} label={t("Arguments")} />
    </div>
  );
}

/** Only code without hidden characters: colours must not make a trick harder to see. */
function codeOf(values: Record<string, unknown>): [string, string, string][] {
  const file = [values["path"], values["file"], values["filename"]].find(isText) ?? "";
  const ending = ENDINGS[file.split(".").at(-1) ?? ""];
  return Object.entries(values).flatMap(([name, value]): [string, string, string][] => {
    const language = CODE_NAMES[name] ?? (name === "content" ? ending : undefined);
    if (!language || !isText(value) || revealed(value).some((piece) => piece.hidden)) return [];
    return [[name, value, language]];
  });
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
