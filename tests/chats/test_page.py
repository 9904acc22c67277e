"""`docs/chats.md` and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

from sk_agents.wire.frames import CHAT_FRAMES, INTERACTION_FRAMES
from sk_agents.wire.requests import EditInteraction, StartInteraction
from tests.chats.test_openapi import ROUTES

PAGE = (Path(__file__).parents[2] / "docs" / "chats.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_every_event_is_on_the_page_with_its_fields() -> None:
    rows = {}
    for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*) \|$", section("Events"), re.MULTILINE):
        for name in re.findall(r"\w+", row[0]):
            rows[name] = row[1]
    assert rows.keys() == CHAT_FRAMES.keys()
    for name, (model, _) in INTERACTION_FRAMES.items():
        fields = model.model_json_schema(mode="serialization")["properties"].keys()
        named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", rows[name]))))
        assert named == fields, name


def test_every_operation_is_on_the_page() -> None:
    found = {
        (method, re.sub(r"\{\w+\}", "{}", path))
        for method, path in re.findall(r"`([A-Z]+) (/[^?`]*)", section("Operations"))
    }
    routes = [route.split() for route in ROUTES]
    assert found == {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path in routes}


def test_an_edit_takes_the_fields_that_the_page_says() -> None:
    assert "takes `new_user_message` and the other fields;" in section("Saying something")
    start = StartInteraction.model_fields.keys() - {"user_message"}
    assert EditInteraction.model_fields.keys() - {"new_user_message"} == start
    rows = re.findall(r"^\| `(\w+)` \|", section("Saying something"), re.MULTILINE)
    assert set(rows) == start
