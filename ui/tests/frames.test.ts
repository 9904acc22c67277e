import { describe, expect, it } from "vitest";

import { frameOf } from "../src/api/frames";

describe("a frame", () => {
  it("is gone on from by its whole id, and is placed by the number it begins with", () => {
    const data = JSON.stringify({ interaction_id: "int_1", title: "Oslo" });
    const frame = frameOf({ id: "17-0badcafe", event: "chat_changed", data });
    expect(frame).toMatchObject({ eventId: "17-0badcafe", seq: 17, title: "Oslo" });
  });

  it("without an id is a preview", () => {
    const data = JSON.stringify({ interaction_id: "int_1", content: "so" });
    expect(frameOf({ id: "", event: "answer_delta", data })).toMatchObject({ eventId: "", seq: 0 });
  });
});
