/** What answers of models have besides plain Markdown: formulas and footnotes. */
import type { Token, TokenizerAndRendererExtension, Tokens } from "marked";

import { t } from "./language";

const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (char) => `&#${char.codePointAt(0)};`);

const DISPLAYED = /^(?:\$\$([^$]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
const INLINE = /^(?:\$\$([^$]+?)\$\$|\\\[([\s\S]+?)\\\]|\\\(([\s\S]+?)\\\))/;
/** Money is no formula: no space inside the dollars, and no digit behind the second one. */
const DOLLARS = /^\$(?![\s$])((?:\\.|[^$\\\n])+?)(?<!\s)\$(?!\d)/;

// Marked asks from each piece of a text where the next formula or note begins. What lies behind the end of
// that piece does not matter, and to look through it each time would make a long text take minutes.
const DOLLAR_IN_PLAIN_TEXT = /^[`~]*[^$\\<![`*_~]*\$/;

const inParagraph =
  (beginning: RegExp) =>
  (source: string): number | undefined => {
    const end = source.search(/\n[ \t]*\n/);
    return (end < 0 ? source : source.slice(0, end)).match(beginning)?.index;
  };

/** As text until the program that sets them is loaded. */
export const maths: TokenizerAndRendererExtension[] = [
  {
    name: "formula",
    level: "block",
    start: inParagraph(/(?:^|\n)(?:\$\$|\\\[)/),
    tokenizer(source) {
      const match = DISPLAYED.exec(source);
      if (!match) return undefined;
      return { type: "formula", raw: match[0], text: (match[1] ?? match[2] ?? "").trim() };
    },
    renderer: (token) => source(token, true),
  },
  {
    name: "inlineFormula",
    level: "inline",
    start(source) {
      const plain = DOLLAR_IN_PLAIN_TEXT.exec(source);
      return plain ? plain[0].length - 1 : undefined;
    },
    tokenizer(source) {
      const wide = INLINE.exec(source);
      const match = wide ?? DOLLARS.exec(source);
      if (!match) return undefined;
      const text = match[1] ?? match[2] ?? match[3] ?? "";
      const isDisplayed = wide !== null && match[3] === undefined;
      return { type: "inlineFormula", raw: match[0], text: text.trim(), isDisplayed };
    },
    renderer: (token) => source(token, token["isDisplayed"] === true),
  },
];

/** Filled by `numberNotes` before anything of the same text is rendered. */
let numbers = new Map<string, number>();

export const footnotes: TokenizerAndRendererExtension[] = [
  {
    name: "footnote",
    level: "block",
    start: inParagraph(/(?:^|\n)\[\^/),
    tokenizer(source) {
      const match = /^\[\^([^\]\s]{1,40})\]:[ \t]+([^\n]+(?:\n(?!\[\^)[^\n]+)*)(?:\n+|$)/.exec(
        source,
      );
      if (!match) return undefined;
      const [raw, label = "", text = ""] = match;
      return { type: "footnote", raw, label, tokens: this.lexer.blockTokens(text, []) };
    },
    renderer: () => "",
  },
  {
    name: "noteMark",
    level: "inline",
    tokenizer(source) {
      const match = /^\[\^([^\]\s]{1,40})\](?!:)/.exec(source);
      return match ? { type: "noteMark", raw: match[0], label: match[1] } : undefined;
    },
    renderer(token) {
      const number = numbers.get(String(token["label"]));
      if (number === undefined) return escaped(token.raw);
      const link = `<a role="link" tabindex="0" data-note="${number}" aria-label="${escaped(t("Note {number}", { number }))}">`;
      return `<sup>${link}${number}</a></sup>`;
    },
  },
];

/** The notes of a text in their order; from now on their marks show their numbers. */
export function numberNotes(tokens: Token[]): Tokens.Generic[] {
  const notes = tokens.filter((token): token is Tokens.Generic => token.type === "footnote");
  numbers = new Map(notes.map((note, at) => [String(note["label"]), at + 1]));
  return notes;
}

const source = ({ text }: Tokens.Generic, isDisplayed: boolean): string =>
  `<code class="math-source${isDisplayed ? " math-display" : ""}">${escaped(String(text))}</code>`;
