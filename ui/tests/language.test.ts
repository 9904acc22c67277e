import { afterEach, describe, expect, test } from "vitest";

import { speak, plural, t, numberText } from "../src/text/language";
import { german } from "../src/text/german";
import { ago, duration, until } from "../src/text/time";
import { read, sourceTexts, type SourceTexts } from "./source_texts";

const source = sourceTexts("src");
const names = (text: string): string[] => [...text.matchAll(/\{(\w+)\}/g)].map(([name]) => name);

afterEach(() => speak("en"));

describe("the German dictionary", () => {
  test("has every text of the page, and no other", () => {
    expect([...source.keys.keys()].filter((key) => !(key in german))).toEqual([]);
    expect(Object.keys(german).filter((key) => !source.keys.has(key))).toEqual([]);
  });

  test("has both forms of texts with a count, and the values that the English text has", () => {
    const wrong = Object.entries(german).filter(([key, entry]) => {
      const isPlural = typeof entry !== "string";
      if (isPlural !== source.keys.get(key)?.isPlural) return true;
      if (!isPlural) return String(names(entry).sort()) !== String(names(key).sort());
      const others = names(key).filter((name) => name !== "{count}");
      return (
        !entry.one ||
        ![entry.one, entry.other].every((form) => others.every((name) => form.includes(name)))
      );
    });
    expect(wrong).toEqual([]);
  });

  test("is loaded when it is chosen, and gives back to English", async () => {
    expect(t("Send")).toBe("Send");
    await speak("de");
    expect(t("Send")).toBe("Senden");
    await speak("en");
    expect(t("Send")).toBe("Send");
  });
});

test("a language that was chosen first and arrives last is not used", async () => {
  const slow = speak("de");
  await speak("en");
  await slow;
  expect(t("Send")).toBe("Send");
});

test("counts have the form and the numbers of the language", async () => {
  expect(plural(1, "{count} token", "{count} tokens")).toBe("1 token");
  expect(plural(1234, "{count} token", "{count} tokens")).toBe("1,234 tokens");
  await speak("de");
  expect(plural(1, "{count} token", "{count} tokens")).toBe("1 Token");
  expect(plural(1234, "{count} token", "{count} tokens")).toBe("1.234 Token");
  expect(numberText(1234.5)).toBe("1.234,5");
});

test("times are relative in the language", async () => {
  const now = Date.parse("2026-11-16T12:00:00Z");
  const before = new Date(now - 5 * 60_000).toISOString();
  const later = new Date(now + 5 * 60_000).toISOString();
  expect([ago(before, now), until(later, now), duration(1500)]).toEqual([
    "5 min. ago",
    "expires in 5 min",
    "1.5 s",
  ]);
  await speak("de");
  expect([ago(before, now), until(later, now), duration(1500)]).toEqual([
    "vor 5 Min.",
    "läuft in 5 min ab",
    "1,5 s",
  ]);
});

describe("the source", () => {
  test("shows no text that has not gone through the dictionary", () => {
    expect(source.bare).toEqual([]);
    expect(source.computed).toEqual([]);
  });

  test.each([
    "<p>Hello you</p>",
    '<p>{isOpen ? "open" : "shut"}</p>',
    "<p>{name || `chat ${number}`}</p>",
    '<button aria-label="Close" />',
    "<IconButton label={isOpen ? t('Open') : 'Shut'} />",
    'throw new Error("The server is away.")',
  ])("with a bare text is found: %s", (text) => {
    const found: SourceTexts = { keys: new Map(), computed: [], bare: [] };
    read("view.tsx", text, found);
    expect(found.bare).toHaveLength(text.includes("shut") ? 2 : 1);
  });
});
