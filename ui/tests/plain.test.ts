import { expect, test } from "vitest";
import { withoutMarks } from "../src/text/plain";

test("what only sets a text is left out of one line of it", () => {
  expect(withoutMarks("## Two\n\nIt is **bold**, ~~not~~ and `code`.")).toBe(
    "Two It is bold, not and code.",
  );
  expect(withoutMarks("| a | b |\n|---|--:|\n| 1 | 2 |")).toBe("| a | b | 1 | 2 |");
  expect(withoutMarks("… b |\n|---|---|--")).toBe("… b ");
});

test("what is text stays", () => {
  expect(withoutMarks("C# and __init__ * 2 - 1 -- a|b, c || d")).toBe(
    "C# and __init__ * 2 - 1 -- a|b, c || d",
  );
});

test("a long text of marks is done in no time", () => {
  expect(withoutMarks("|--".repeat(50_000))).toBeDefined();
  expect(withoutMarks("| --".repeat(50_000) + "x")).toBeDefined();
  expect(withoutMarks(" ".repeat(100_000))).toBe(" ");
});
