/** The texts in the page's source, read from its syntax. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import ts from "typescript";

export interface SourceTexts {
  /** The keys of the dictionaries, with whether they are texts with a count. */
  keys: Map<string, { isPlural: boolean }>;
  /** Calls whose text is not written where it is used. */
  computed: string[];
  /** Texts that users would read in English whatever their language is. */
  bare: string[];
}

const ATTRIBUTES = new Set(["aria-label", "title", "placeholder", "alt", "label"]);
/** What stands in these is written for machines, or is the name of a key. */
const VERBATIM = new Set(["code", "kbd"]);
/** A sentence, or a part of one, and no name, path, type or class. */
const SENTENCE = /^[A-Z“][^<>{}=\\]*\p{L}{3}[^<>{}=\\]*\s[^<>{}=\\]*[\p{L}.…?!”)]$/u;
const WORD = /\p{L}{2}/u;
/** Names, which are the same in all languages. */
const NAMES = new Set(["Teal Agents"]);

export function sourceTexts(folder: string): SourceTexts {
  const found: SourceTexts = { keys: new Map(), computed: [], bare: [] };
  for (const file of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
    const isSource = /\.tsx?$/.test(file) && !file.endsWith(".d.ts");
    // The schema is the server's, the reference a program of others, and a dictionary has no views.
    if (!isSource || /^(?:api\/schema\.ts|reference\/|text\/german\.ts)/.test(file)) continue;
    read(file, readFileSync(join(folder, file), "utf8"), found);
  }
  return found;
}

/** Adds the texts of one file. */
export function read(name: string, source: string, found: SourceTexts): void {
  const tree = ts.createSourceFile(name, source, ts.ScriptTarget.Latest, true, ts.ScriptKind.TSX);
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && ts.isIdentifier(node.expression)) {
      const isPlural = node.expression.text === "plural";
      if (isPlural || ["t", "phrase"].includes(node.expression.text)) {
        const texts = isPlural ? node.arguments.slice(1, 3) : node.arguments.slice(0, 1);
        const key = texts.at(-1);
        if (key && texts.every(ts.isStringLiteral)) {
          found.keys.set((key as ts.StringLiteral).text, { isPlural });
        } else if (!name.endsWith("language.ts")) {
          found.computed.push(`${name}: ${node.getText()}`);
        }
        node.arguments.filter((part) => !texts.includes(part)).forEach(visit);
        return;
      }
    }
    if (isBare(node)) found.bare.push(`${name}: ${node.getText().trim()}`);
    ts.forEachChild(node, visit);
  };
  visit(tree);
}

function isBare(node: ts.Node): boolean {
  if (ts.isJsxText(node)) {
    return WORD.test(node.text) && !NAMES.has(node.text.trim()) && !isVerbatim(node.parent);
  }
  const texts = textsOf(node);
  if (!texts.some((text) => WORD.test(text)) || NAMES.has(texts.join(""))) return false;
  return isShown(node) || texts.some((text) => SENTENCE.test(text.trim()));
}

function textsOf(node: ts.Node): string[] {
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return [node.text];
  if (!ts.isTemplateExpression(node)) return [];
  return [node.head.text, ...node.templateSpans.map((span) => span.literal.text)];
}

/** Whether it stands where a view shows it: in a label, or between two tags. */
function isShown(node: ts.Node): boolean {
  const above = node.parent;
  if (ts.isConditionalExpression(above)) return node !== above.condition && isShown(above);
  if (ts.isParenthesizedExpression(above)) return isShown(above);
  if (ts.isBinaryExpression(above)) {
    const isValue = above.right === node;
    const joins = [
      ts.SyntaxKind.AmpersandAmpersandToken,
      ts.SyntaxKind.BarBarToken,
      ts.SyntaxKind.QuestionQuestionToken,
    ];
    return isValue && joins.includes(above.operatorToken.kind) && isShown(above);
  }
  if (ts.isJsxAttribute(above)) return ATTRIBUTES.has(above.name.getText());
  if (!ts.isJsxExpression(above)) return false;
  if (ts.isJsxAttribute(above.parent)) return ATTRIBUTES.has(above.parent.name.getText());
  return !isVerbatim(above.parent);
}

const isVerbatim = (element: ts.Node): boolean =>
  ts.isJsxElement(element) && VERBATIM.has(element.openingElement.tagName.getText());
