import { expect, test } from "vitest";
import { placeholderRun, type Run } from "../src/chat/run";
import { versions, pathTo, type Runs } from "../src/chat/tree";

const run = (id: string, parent: string | null, more: Partial<Run> = {}): Run => ({
  ...placeholderRun(id),
  parent,
  isPlaceholder: false,
  createdAt: `2026-01-01T00:00:0${id}Z`,
  ...more,
});

function chat(...runs: Run[]): Runs {
  const known = new Map(runs.map((one) => [one.id, one]));
  return { get: (id) => known.get(id), all: () => known.values() };
}

test("the path leads from the first run to the head, past other branches", () => {
  const runs = chat(run("1", null), run("2", "1"), run("3", "1"), run("4", "3"));
  expect(pathTo(runs, "4")).toEqual(["1", "3", "4"]);
});

test("the path starts where the runs known here start", () => {
  expect(pathTo(chat(run("2", "1"), run("3", "2")), "3")).toEqual(["2", "3"]);
});

test("there is no path to nothing or to an unknown run", () => {
  expect(pathTo(chat(run("1", null)), null)).toEqual([]);
  expect(pathTo(chat(run("1", null)), "9")).toEqual([]);
});

test("the path ends although runs claim to follow each other", () => {
  expect(pathTo(chat(run("1", "2"), run("2", "1")), "2")).toEqual(["1", "2"]);
});

test("runs said in each other's place are a family, oldest first", () => {
  const runs = chat(run("3", "1"), run("1", null), run("2", "1"));
  expect(versions(runs)).toEqual(
    new Map([
      [null, ["1"]],
      ["1", ["2", "3"]],
    ]),
  );
});

test("runs that wait for their turn or are not known yet belong to no family", () => {
  const waiting = run("2", "1", { queued: true });
  const unknown = run("3", "1", { isPlaceholder: true });
  expect(versions(chat(run("1", null), waiting, unknown))).toEqual(new Map([[null, ["1"]]]));
});
