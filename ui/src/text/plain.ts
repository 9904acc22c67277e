/** Markdown where there is no room to set it: in one line, or cut out of its place. */
const MARKS = /`+|\*\*|~~|(?:^|(?<= ))#{1,6} /g;
/** What is between two bars of a table and says nothing: a part of the line below its head, or the end of a row. */
const EMPTY_CELL = /^ $|^ ?:?-{2,}:? ?$/;

export function withoutMarks(text: string): string {
  const cells = text.replace(/\s+/g, " ").replace(MARKS, "").split("|");
  if (cells.length === 1) return cells[0] ?? "";
  return cells.filter((cell) => !EMPTY_CELL.test(cell)).join("|");
}
