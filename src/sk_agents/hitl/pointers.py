"""Places inside a call's arguments: a plain argument name, or a JSON pointer (RFC 6901)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_LOCAL = re.compile(r"#/(?:[^~]|~[01])*")
_CHOICES = ("anyOf", "oneOf", "allOf")
MAX_VISITS = 256


ABSENT: Any = object()


def steps(place: str) -> tuple[str, ...]:
    """The names to follow, from the outside in.

    Raises:
        ValueError: empty, or no pointer.
    """
    if not place.startswith("/"):
        if not place:
            raise ValueError("an argument's name cannot be empty")
        return (place,)
    if re.search(r"~(?![01])", place):
        raise ValueError("in a pointer, ~ is written ~0 and / is written ~1")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in place[1:].split("/"))


def at(arguments: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at a place, `ABSENT` if nothing is there."""
    value: Any = arguments
    for step in path:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return ABSENT
    return value


def is_possible(schema: Any, path: Sequence[str]) -> bool:
    """False iff no arguments that fit the schema have anything at this place."""
    return _Search(schema).finds(schema, tuple(path))


class _Search:
    """Visits each part of the schema once: a foreign one may refer to itself in any way."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._seen: set[tuple[int, int]] = set()

    def finds(self, schema: Any, path: tuple[str, ...]) -> bool:
        # A schema this cannot follow forbids nothing.
        if not path or not isinstance(schema, Mapping) or len(self._seen) > MAX_VISITS:
            return True
        visit = (id(schema), len(path))
        if visit in self._seen:
            return False
        self._seen.add(visit)
        choices = [choice for word in _CHOICES for choice in schema.get(word, ())]
        if "$ref" in schema:
            choices.append(self._referred(schema["$ref"]))
        if choices:
            return any(self.finds(choice, path) for choice in choices)
        return self._finds_step(schema, path[0], path[1:])

    def _finds_step(self, schema: Mapping[str, Any], step: str, rest: tuple[str, ...]) -> bool:
        match schema.get("type"):
            case "object":
                properties = schema.get("properties", {})
                if step in properties:
                    return self.finds(properties[step], rest)
                # A model's own schema lists all its fields; only a free mapping takes others.
                others = schema.get("additionalProperties", not properties)
                return others is not False and self.finds(others, rest)
            case "array":
                return _INDEX.fullmatch(step) is not None and self.finds(schema.get("items"), rest)
            case "string" | "number" | "integer" | "boolean" | "null":
                return False
            case _:
                return True

    def _referred(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not _LOCAL.fullmatch(reference):
            return ABSENT
        return at(self._root, steps(reference[1:]))
