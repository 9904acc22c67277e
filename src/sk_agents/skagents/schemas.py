"""The types of an agent file in the words of OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

DEFINITIONS = "$defs"
LOCAL = f"#/{DEFINITIONS}/"


def body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """The type's JSON schema in one piece: it stands where no definitions can stand beside it.

    A type that JSON schema cannot describe, or a part that contains itself, is anything.
    """
    try:
        schema = kind.model_json_schema()
    except PydanticUserError:
        return {"title": kind.__name__}
    definitions = schema.pop(DEFINITIONS, {})
    inlined: dict[str, Any] = _inlined(schema, definitions, ())
    return inlined


def _inlined(schema: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, definitions, inside) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(LOCAL):
        return {key: _inlined(value, definitions, inside) for key, value in schema.items()}
    name = reference.removeprefix(LOCAL)
    if name in inside:
        return {"title": name}
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**_inlined(definitions[name], definitions, (*inside, name)), **beside}
