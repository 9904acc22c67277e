/** Markdown as blocks, each of which becomes harmless DOM.
 *
 * A text that grows changes only its last block, so the blocks above it are not rendered again. Raw HTML is
 * shown as the text it is. Nothing is fetched: a picture of another server becomes a link.
 */
import DOMPurify from "dompurify";
import { Marked, type Token, type Tokens } from "marked";

import { footnotes, maths, numberNotes } from "./extensions";
import { t } from "./language";

export type Block =
  | { kind: "html"; raw: string; html: string }
  | { kind: "code"; raw: string; text: string; language: string }
  | { kind: "formula"; raw: string; text: string };

/** Beyond this a text is shown as it is: it is a document or an attack, not an answer. */
export const MAX_MARKDOWN = 200_000;

const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,/;

const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (char) => `&#${char.codePointAt(0)};`);

const marked = new Marked({
  gfm: true,
  breaks: false,
  extensions: [...maths, ...footnotes],
  renderer: {
    html: ({ text }) => escaped(text),
    heading(token) {
      const words = this.parser.parseInline(token.tokens);
      const level = levels.get(token);
      return level ? `<h${level}>${words}</h${level}>` : `<p><strong>${words}</strong></p>`;
    },
    table(token) {
      // A table that is wider than the column scrolls by itself, also with the keyboard.
      return `<div class="wide-table" tabindex="0" role="group" aria-label="${escaped(t("Table"))}">${tableOf(
        token,
        (cell) => this.parser.parseInline(cell.tokens),
      )}</div>`;
    },
    image({ href, text }) {
      if (PICTURE.test(href)) return `<img src="${escaped(href)}" alt="${escaped(text)}">`;
      return `<a href="${escaped(href)}">${escaped(t("[picture: {name}]", { name: text || href }))}</a>`;
    },
    listitem(item) {
      const words = this.parser.parse(item.tokens);
      return item.task ? `<li class="task">${words}</li>` : `<li>${words}</li>`;
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

const purifier = DOMPurify();
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A" && node.hasAttribute("href")) {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
});

/** The level of each heading on the page; those inside of a list or a quotation have none. */
let levels = new Map<Token, number>();

export function blocks(text: string): Block[] {
  const tokens = marked.lexer(text).filter((token) => token.type !== "space");
  levels = levelsOf(tokens);
  const notes = numberNotes(tokens);
  const found = tokens
    .filter((token) => token.type !== "def" && token.type !== "footnote")
    .map(blockOf);
  return notes.length ? [...found, noteBlock(notes)] : found;
}

export function fragment(html: string): DocumentFragment {
  return purifier.sanitize(html, {
    RETURN_DOM_FRAGMENT: true,
    ALLOWED_TAGS: (
      "p h3 h4 h5 h6 ul ol li blockquote em strong del code pre table thead tbody tr th td hr br a " +
      "img span sup div"
    ).split(" "),
    ALLOWED_ATTR: "href src alt align start class role tabindex aria-label data-note".split(" "),
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|data:image\/(?:png|jpeg|gif|webp);base64,)/i,
    // Of every other attribute the value would have to be an address.
    ADD_URI_SAFE_ATTR: ["align", "start", "tabindex", "data-note"],
    ALLOW_DATA_ATTR: false,
  });
}

/** The page has its own first and second level; below them none is left out. */
function levelsOf(tokens: Token[]): Map<Token, number> {
  const found = new Map<Token, number>();
  const open: number[] = [];
  for (const token of tokens) {
    if (token.type !== "heading") continue;
    const { depth } = token as Tokens.Heading;
    while (open.length && (open.at(-1) ?? 0) >= depth) open.pop();
    open.push(depth);
    found.set(token, Math.min(2 + open.length, 6));
  }
  return found;
}

function blockOf(token: Token): Block {
  if (token.type === "code") {
    const language = String(token["lang"] ?? "").split(/\s/)[0] ?? "";
    return { kind: "code", raw: token.raw, text: String(token["text"]), language };
  }
  if (token.type === "formula") {
    return { kind: "formula", raw: token.raw, text: String(token["text"]) };
  }
  return { kind: "html", raw: token.raw, html: marked.parser([token]) };
}

function noteBlock(notes: Tokens.Generic[]): Block {
  const items = notes.map((note) => `<li>${marked.parser(note.tokens ?? [])}</li>`);
  const html = `<div class="footnotes" role="group" aria-label="${escaped(t("Notes"))}"><ol>${items.join("")}</ol></div>`;
  return { kind: "html", raw: notes.map((note) => note.raw).join(""), html };
}

function tableOf(token: Tokens.Table, inner: (cell: Tokens.TableCell) => string): string {
  const cells = (row: Tokens.TableCell[], tag: "th" | "td"): string =>
    row
      .map((cell) => {
        const align = cell.align ? ` align="${cell.align}"` : "";
        return `<${tag}${align}>${inner(cell)}</${tag}>`;
      })
      .join("");
  const body = token.rows.map((row) => `<tr>${cells(row, "td")}</tr>`).join("");
  return `<table><thead><tr>${cells(token.header, "th")}</tr></thead><tbody>${body}</tbody></table>`;
}
