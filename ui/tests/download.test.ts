import { expect, test } from "vitest";

import { shownName } from "../src/page/download";

test("a file is saved under what can be seen of its name", () => {
  expect(shownName("invoice\u202etxt.\u001bexe\u2066")).toBe("invoicetxt.exe");
  expect(shownName("Größe 日本語.png")).toBe("Größe 日本語.png");
});
