/** JSON with line breaks and indents, without a change to any literal.
 *
 * Parsing and writing it again could change what is shown: 1.0 would become 1, and a long id
 * another one. So tokens are only moved, never interpreted.
 */

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const INDENT = "  ";

export function formattedJson(source: string): string {
  let depth = 0;
  let out = "";
  let previous = "";
  for (const [token] of source.matchAll(TOKEN)) {
    const closes = token === "}" || token === "]";
    if (closes) depth -= 1;
    const isEmpty = closes && (previous === "{" || previous === "[");
    const breaks = (closes || opens(previous) || previous === ",") && previous !== "" && !isEmpty;
    if (breaks) out += `\n${INDENT.repeat(Math.max(0, depth))}`;
    out += token === ":" ? ": " : token;
    if (opens(token)) depth += 1;
    previous = token;
  }
  return out;
}

/** Whether reading the numbers and writing them again gives the same numbers. */
export function isExact(source: string): boolean {
  for (const [token] of source.matchAll(TOKEN)) {
    if (/^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token))) return false;
  }
  return true;
}

export function parsedObject(source: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(source);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

const opens = (token: string): boolean => token === "{" || token === "[";
