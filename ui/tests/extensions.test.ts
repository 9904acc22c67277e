import { Marked } from "marked";
import { expect, test } from "vitest";
import { footnotes, maths, numberNotes } from "../src/text/extensions";

const marked = new Marked({ extensions: [...maths, ...footnotes] });

function rendered(text: string): string {
  const tokens = marked.lexer(text);
  numberNotes(tokens);
  return marked.parser(tokens).trim();
}

const inline = (text: string) => `<code class="math-source">${text}</code>`;
const displayed = (text: string) => `<code class="math-source math-display">${text}</code>`;

test.each([
  [String.raw`\(x\)`, inline("x")],
  [String.raw`so \(a_1 * b_2 * c\) holds`, inline("a_1 * b_2 * c")],
  ["$e^{i\\pi} = -1$", inline("e^{i\\pi} = -1")],
  [String.raw`\[x^2\]`, displayed("x^2")],
  ["$$\nx^2\n$$", displayed("x^2")],
  ["a $$y$$ b", displayed("y")],
  ["above\n$$\nx^2\n$$\nbelow", displayed("x^2")],
  ["``open [a](b) *c* ~d $x$", inline("x")],
])("%j has a formula", (text, formula) => {
  expect(rendered(text)).toContain(formula);
});

test.each(["It costs $5 and $10.", "from $5-$10", "a $ b $ c", "`\\(x\\)`", "$100"])(
  "%j has none",
  (text) => {
    expect(rendered(text)).not.toContain("math-source");
  },
);

test("what is in a formula is no HTML", () => {
  expect(rendered("$a<b>c$")).toContain(inline("a&#60;b&#62;c"));
});

test("notes are numbered in their order, and an unknown mark stays as it was written", () => {
  const html = rendered("One[^b], two[^a], three[^c].\n\n[^a]: First.\n[^b]: Second.");
  expect(html).toContain('data-note="2" aria-label="Note 2">2</a></sup>, two');
  expect(html).toContain('data-note="1" aria-label="Note 1">1</a></sup>, three');
  expect(html).toContain("three[^c].");
  expect(html).not.toContain("First");
});

test.each([
  ["markup in one line", "[".repeat(60_000) + "*_`".repeat(20_000)],
  ["short paragraphs", "a\n\n".repeat(60_000)],
])("a long text of %s takes no longer for what may be in it", (_, text) => {
  const plain = new Marked();
  const spent = (read: Marked): number => {
    const begun = performance.now();
    read.lexer(text);
    return performance.now() - begun;
  };
  spent(plain);
  // Looking to the end of the text from each piece took a hundred times as long.
  expect(spent(marked)).toBeLessThan(20 * spent(plain) + 1_000);
});
