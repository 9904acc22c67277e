"""Schemas that a server wrote: what of them is usable, and arguments checked against them.

Nothing here follows a reference out of the schema, and what is accepted is bounded in size when
every reference is replaced by what it points to: a small text cannot make checking endless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sk_agents.engine.log.canonical import canonical_json
from sk_agents.exceptions import InvalidInput
from sk_agents.tools.schema_check import SchemaCheck

MOST_BYTES = 64 * 1024
MOST_DEPTH = 64
# Nodes of the schema with its references replaced.
MOST_NODES = 5_000
# They change what a reference means, and so what was counted here would not be what is checked.
_RENAMING = ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef")


class UnusableSchema(ValueError):
    """Why a tool with this schema is not offered."""


class Arguments:
    """Checks a call's arguments as its server's schema asks.

    Raises UnusableSchema: the schema is too large, refers to itself or to somewhere else, is not
    about an object or is no schema at all.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        plain = {key: value for key, value in schema.items() if key != "$id"}
        check_schema(plain)
        self.schema: dict[str, Any] = {"type": "object", "properties": {}, **plain}
        kind, properties = self.schema["type"], self.schema["properties"]
        if kind != "object" or not isinstance(properties, dict):
            raise UnusableSchema("it is not about an object")
        defaults = {
            name: entry["default"]
            for name, entry in properties.items()
            if isinstance(entry, Mapping) and entry.get("default") is not None
        }
        self.check = SchemaCheck(self.schema, validator_of(self.schema), defaults).check


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises UnusableSchema: too large, or it refers to itself or to somewhere else."""
    try:
        size = len(canonical_json(dict(schema)))
    except (InvalidInput, RecursionError):
        raise UnusableSchema("it is no JSON, or nested too deep") from None
    if size > MOST_BYTES:
        raise UnusableSchema(f"it is larger than {MOST_BYTES} bytes")
    _Counter(schema).count(schema, 0, frozenset())


class _Counter:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MOST_NODES

    def count(self, node: Any, depth: int, through: frozenset[str]) -> None:
        self._left -= 1
        if self._left < 0 or depth > MOST_DEPTH:
            raise UnusableSchema("it is too large with its references replaced")
        if isinstance(node, list):
            for part in node:
                self.count(part, depth + 1, through)
        elif isinstance(node, Mapping):
            for keyword, part in node.items():
                if keyword in _RENAMING and isinstance(part, str):
                    raise UnusableSchema(f"it uses {keyword}")
                if keyword == "$ref" and isinstance(part, str):
                    self._follow(part, depth, through)
                else:
                    self.count(part, depth + 1, through)

    def _follow(self, reference: str, depth: int, through: frozenset[str]) -> None:
        if reference in through:
            raise UnusableSchema("it refers to itself")
        self.count(self._target(reference), depth + 1, through | {reference})

    def _target(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            raise UnusableSchema("it refers to something outside of it")
        node: Any = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or name not in node:
                raise UnusableSchema("it refers to something that is not there")
            node = node[name]
        return node


def validator_of(schema: Mapping[str, Any]) -> Any:
    """Raises UnusableSchema: it is no JSON Schema."""
    # Only servers with MCP or remote tools need it. It brings no types.
    import jsonschema  # type: ignore[import-untyped]  # noqa: PLC0415
    import referencing  # noqa: PLC0415

    draft = jsonschema.Draft202012Validator
    try:
        draft.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError):
        raise UnusableSchema("it is no JSON Schema") from None
    # Patterns are left to the server: matching some of them takes for ever. The empty registry
    # keeps the library from fetching what a reference names.
    lenient = jsonschema.validators.extend(draft, {"pattern": _unchecked})
    return lenient(schema, registry=referencing.Registry())


def _unchecked(*_: object) -> Iterable[Any]:
    return ()
