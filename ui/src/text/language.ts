/** The language of the page: its words, and the locale of its dates and numbers.
 *
 * English stands in the source, where it is used, and is the key of the dictionaries of the other
 * languages. A dictionary is loaded when its language is chosen. `tests/language.test.ts` holds
 * them against the source.
 */
import { computed, signal } from "@preact/signals";
import { Fragment, h, type ComponentChildren, type VNode } from "preact";

export type Language = "en" | "de";

/** A text, or the forms of a text with a count in it. */
export type Entry = string | (Partial<Record<Intl.LDMLPluralRule, string>> & { other: string });
export type Dictionary = Readonly<Record<string, Entry>>;

/** The languages by their own names. */
export const LANGUAGES: Readonly<Record<Language, string>> = { en: "English", de: "Deutsch" };

const DICTIONARIES: Record<Language, () => Promise<Dictionary>> = {
  en: () => Promise.resolve({}),
  de: () => import("./german").then(({ german }) => german),
};

/** The names in braces in a text. */
type Names<Text extends string> = Text extends `${string}{${infer Name}}${infer Rest}`
  ? Name | Names<Rest>
  : never;
type Values<Text extends string, Value> = [Names<Text>] extends [never]
  ? []
  : [values: Record<Names<Text>, Value>];

const spoken = signal<{ language: Language; words: Dictionary }>({ language: "en", words: {} });
let asked = 0;

export const language = computed(() => spoken.value.language);

/** The language in the form that the user's browser prefers: `de-AT`, `en-GB`. */
export const locale = computed(() => {
  const { language } = spoken.value;
  return preferred().find((tag) => languageOf(tag) === language) ?? language;
});

const numbers = computed(() => new Intl.NumberFormat(locale.value));
const rules = computed(() => new Intl.PluralRules(locale.value));

/** The first of the browser's languages that the page has. */
export const preferredLanguage = (): Language =>
  preferred()
    .map(languageOf)
    .find((known) => known !== null) ?? "en";

/** Load and use a language. Rejects if its dictionary cannot be loaded; nothing changes then. */
export async function speak(wanted: Language): Promise<void> {
  const mine = ++asked;
  const words = await DICTIONARIES[wanted]();
  // Another one was chosen while this one was on its way.
  if (mine === asked) spoken.value = { language: wanted, words };
}

/** A text in the language of the page; numbers in it are written as there. */
export function t<Text extends string>(
  text: Text,
  ...[values]: Values<Text, string | number>
): string {
  return filled(formOf(text, text), values ?? {}).join("");
}

/** A text with a count in it, `{count}`. Other languages have other forms than these two. */
export function plural<One extends string, Other extends string>(
  count: number,
  one: One,
  other: Other,
  ...[values]: Values<
    Exclude<Names<One | Other>, "count"> extends infer Name extends string ? `{${Name}}` : "",
    string | number
  >
): string {
  const english = count === 1 ? one : other;
  return filled(formOf(other, english, count), { ...values, count }).join("");
}

/** A text with elements in it. */
export function phrase<Text extends string>(
  text: Text,
  ...[values]: Values<Text, ComponentChildren>
): VNode {
  return h(Fragment, null, ...filled(formOf(text, text), values ?? {}));
}

export const numberText = (value: number): string => numbers.value.format(value);

function formOf(key: string, english: string, count?: number): string {
  const entry = spoken.value.words[key];
  if (entry === undefined) return english;
  if (typeof entry === "string") return entry;
  return (count === undefined ? undefined : entry[rules.value.select(count)]) ?? entry.other;
}

/** The pieces of a text, with the values where their names are. */
function filled<Value>(text: string, values: Record<string, Value>): (Value | string)[] {
  return text.split(/\{(\w+)\}/).map((piece, at) => {
    if (at % 2 === 0) return piece;
    const value = values[piece];
    return typeof value === "number" ? numberText(value) : (value ?? "");
  });
}

/** Tests of this room run without a browser. */
const preferred = (): readonly string[] => globalThis.navigator?.languages ?? [];

function languageOf(tag: string): Language | null {
  const name = tag.toLowerCase().split("-")[0] ?? "";
  return name in LANGUAGES ? (name as Language) : null;
}
