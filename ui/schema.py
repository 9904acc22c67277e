"""Writes `schema.json`: what the page sends and is sent, out of the server's own models.

The page's types are made of it, so that a page which does not fit the server is not built.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from sk_agents.wire import requests, views
from sk_agents.wire.frames import CHAT_FRAMES

Shape = tuple[type[BaseModel], Literal["validation", "serialization"]]

PLACE = Path(__file__).parent / "schema.json"


def schema() -> dict[str, Any]:
    """The models by name, and in `Frames` those of the stream's events by the event's name."""
    sent: list[Shape] = [(model, "validation") for model in _models(requests)]
    shown: list[Shape] = [(model, "serialization") for model in _models(views)]
    framed: list[Shape] = [(model, "serialization") for model, _ in CHAT_FRAMES.values()]
    wanted = [*sent, *shown, *dict.fromkeys(framed)]
    references, document = models_json_schema(wanted, ref_template="#/definitions/{model}")
    definitions = {name: _untitled(entry) for name, entry in sorted(document["$defs"].items())}
    definitions["Frames"] = {
        "type": "object",
        "properties": {
            name: references[model, "serialization"] for name, (model, _) in CHAT_FRAMES.items()
        },
        "required": list(CHAT_FRAMES),
    }
    return {"title": "Wire", "type": "object", "definitions": definitions}


def rendered() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _models(module: Any) -> list[type[BaseModel]]:
    return [
        model
        for _, model in inspect.getmembers(module, inspect.isclass)
        if issubclass(model, BaseModel) and model.__module__ == module.__name__
    ]


def _untitled(entry: dict[str, Any]) -> dict[str, Any]:
    """Without the titles of fields, each of which would become a type of its own."""
    kept = dict(entry)
    if "properties" in kept:
        kept["properties"] = {
            name: {key: value for key, value in field.items() if key != "title"}
            for name, field in kept["properties"].items()
        }
    return kept


if __name__ == "__main__":
    text = rendered()
    if not PLACE.exists() or PLACE.read_text() != text:
        PLACE.write_text(text)
    sys.exit(0)
