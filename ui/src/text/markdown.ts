/** Markdown as blocks, each of which becomes harmless DOM.
 *
 * A text that grows changes only its last block, so the blocks above it are not rendered again. Raw HTML is
 * shown as the text it is. Nothing is fetched: a picture of another server becomes a link.
 */
import DOMPurify from "dompurify";
import { Marked, type Token } from "marked";

export type Block =
  | { kind: "html"; raw: string; html: string }
  | { kind: "code"; raw: string; text: string; language: string };

/** Beyond this a text is shown as it is: it is a document or an attack, not an answer. */
export const MAX_MARKDOWN = 200_000;

const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,/;

const escaped = (text: string): string =>
  text.replace(/[&<>"']/g, (char) => `&#${char.codePointAt(0)};`);

const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    html: ({ text }) => escaped(text),
    heading({ tokens, depth }) {
      // The page has its own first and second level.
      const level = Math.min(depth + 2, 6);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
    image({ href, text }) {
      if (PICTURE.test(href)) return `<img src="${escaped(href)}" alt="${escaped(text)}">`;
      return `<a href="${escaped(href)}">[picture: ${escaped(text || href)}]</a>`;
    },
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

const purifier = DOMPurify();
purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
  }
});

export function blocks(text: string): Block[] {
  const tokens = marked.lexer(text);
  return tokens.filter((token) => token.type !== "space" && token.type !== "def").map(blockOf);
}

export function fragment(html: string): DocumentFragment {
  return purifier.sanitize(html, {
    RETURN_DOM_FRAGMENT: true,
    ALLOWED_TAGS: (
      "p h3 h4 h5 h6 ul ol li blockquote em strong del code pre table thead tbody tr th td hr br a " +
      "img span"
    ).split(" "),
    ALLOWED_ATTR: ["href", "src", "alt", "align", "start", "class"],
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|data:image\/(?:png|jpeg|gif|webp);base64,)/i,
    ALLOW_DATA_ATTR: false,
  });
}

function blockOf(token: Token): Block {
  if (token.type === "code") {
    const language = String(token["lang"] ?? "").split(/\s/)[0] ?? "";
    return { kind: "code", raw: token.raw, text: String(token["text"]), language };
  }
  return { kind: "html", raw: token.raw, html: marked.parser([token]) };
}
