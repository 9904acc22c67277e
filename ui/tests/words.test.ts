import { expect, test } from "vitest";
import { likest } from "../src/text/likeness";
import { byDay, byModel } from "../src/text/spent";
import { dateGroup } from "../src/text/time";

const earlier = (input: object, approved = true) => ({
  input: JSON.stringify(input),
  approved,
  at: "2026-11-09T10:00:00Z",
});

test("of the earlier calls the one with most in common is compared, the newest of those", () => {
  const found = likest('{"to":"ada","text":"hi","n":1}', [
    earlier({ to: "bob", text: "ho", n: 1 }),
    earlier({ to: "eve", text: "hi", n: 1 }, false),
    earlier({ to: "bob", text: "hi", n: 1 }),
  ]);
  expect(found?.earlier.approved).toBe(true);
  expect(found?.changed).toEqual([{ name: "to", before: "bob", now: "ada" }]);
});

test("a call that shares nothing is not compared, and one that is the same has no changes", () => {
  expect(likest('{"to":"ada"}', [earlier({ to: "bob" })])).toBeNull();
  expect(likest('{"to":"ada"}', [earlier({ to: "ada" })])?.changed).toEqual([]);
  expect(likest("{}", [])).toBeNull();
});

test("every day of the report has a bar, and currencies stay apart", () => {
  const row = (day: string, currency: string) => ({
    day,
    user_id: "u",
    agent: "a",
    model: "m",
    calls: 1,
    prompt_tokens: 10,
    completion_tokens: 5,
    cost: [{ amount: 2, currency }],
  });
  const rows = [row("2026-11-14", "EUR"), row("2026-11-16", "USD"), row("2026-11-16", "EUR")];
  const now = Date.parse("2026-11-16T12:00:00Z");
  expect(byDay(rows, "2026-11-13", now).map((day) => day.tokens)).toEqual([0, 15, 0, 30]);
  expect(byModel(rows)).toMatchObject([
    {
      calls: 3,
      read: 30,
      cost: [
        { amount: 4, currency: "EUR" },
        { amount: 2, currency: "USD" },
      ],
    },
  ]);
});

test("chats are grouped by the calendar, not by hours", () => {
  const now = new Date(2026, 10, 16, 0, 30);
  const group = (...date: [number, number, number, number]) =>
    dateGroup(new Date(...date).toISOString(), now);
  expect(group(2026, 10, 16, 0)).toBe("Today");
  expect(group(2026, 10, 15, 23)).toBe("Yesterday");
  expect(group(2026, 10, 10, 12)).toBe("The last 7 days");
  expect(group(2026, 9, 25, 12)).toBe("The last 30 days");
  expect(group(2026, 5, 1, 12)).toMatch(/2026/);
});
