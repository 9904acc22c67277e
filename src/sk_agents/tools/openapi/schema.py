"""Schemas of an OpenAPI document as the JSON schema that models and validators read.

References are written out, so that a schema stands by itself; where one contains itself, it is
written out once, and what would follow is left open. Keywords that say nothing about a request
(examples, XML, links to documentation) are left out: they would cost tokens in every prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.openapi.document import Document

MOST_NODES = 5_000
MOST_DEPTH = 48

_ANNOTATIONS = ("title", "description", "default")
_PLAIN = {
    *_ANNOTATIONS,
    "type",
    "enum",
    "const",
    "format",
    "required",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
}
_ONE = {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
_SEVERAL = {"allOf", "anyOf", "oneOf", "prefixItems"}
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_AGAIN = "As above, once more inside itself."


class SchemaTooLarge(ConfigurationError):
    """Written out, the schema is too large for a prompt."""


class SchemaWriter:
    """Writes out the schemas of one operation; together they have a bounded size."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0

    def written(self, schema: Any, inside: tuple[str, ...] = (), depth: int = 0) -> Any:
        """The schema by itself, for a request.

        Raises:
            SchemaTooLarge: it would have too many parts.
            ConfigurationError: it is no schema, or a reference leads nowhere.
        """
        self._nodes += 1
        if self._nodes > MOST_NODES or depth > MOST_DEPTH:
            raise SchemaTooLarge(f"{self._document.source}: a schema is too large, written out")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise self._document.fault("a schema must be a mapping")
        if "$ref" in schema:
            return self._referred(schema, inside, depth)
        result = {name: _json(schema[name]) for name in schema if name in _PLAIN}
        for name in schema:
            if name in _ONE:
                result[name] = self.written(schema[name], inside, depth + 1)
            elif name in _SEVERAL:
                entries = _list(schema[name], self._document, name)
                result[name] = [self.written(entry, inside, depth + 1) for entry in entries]
        if "properties" in schema:
            result["properties"] = self._properties(schema["properties"], result, inside, depth)
        return _modern(result, nullable=schema.get("nullable") is True)

    def _referred(self, schema: Mapping[str, Any], inside: tuple[str, ...], depth: int) -> Any:
        reference = str(schema["$ref"])
        target = self._document.target(schema["$ref"])
        if reference in inside:
            kind = target.get("type") if isinstance(target, Mapping) else None
            return {"description": _AGAIN, **({"type": kind} if isinstance(kind, str) else {})}
        found = self.written(target, (*inside, reference), depth + 1)
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        notes = {name: _json(beside.pop(name)) for name in _ANNOTATIONS if name in beside}
        more = self.written(beside, inside, depth + 1) if beside else {}
        if more:
            return {"allOf": [found, more], **notes}
        return {**found, **notes} if isinstance(found, Mapping) else found

    def _properties(
        self, properties: Any, result: dict[str, Any], inside: tuple[str, ...], depth: int
    ) -> dict[str, Any]:
        """Without those that only a service may set."""
        if not isinstance(properties, Mapping):
            raise self._document.fault("properties must be a mapping")
        kept = {}
        for name, entry in properties.items():
            target = self._document.followed(entry)
            if isinstance(target, Mapping) and target.get("readOnly") is True:
                continue
            kept[str(name)] = self.written(entry, inside, depth + 1)
        if isinstance(result.get("required"), list):
            dropped = {str(name) for name in properties} - kept.keys()
            result["required"] = [name for name in result["required"] if name not in dropped]
        return kept


def _modern(schema: dict[str, Any], *, nullable: bool) -> dict[str, Any]:
    """OpenAPI 3.0 has words of its own for two things."""
    for exclusive, inclusive in _BOUNDS:
        flag = schema.get(exclusive)
        if isinstance(flag, bool):
            del schema[exclusive]
            if flag and inclusive in schema:
                schema[exclusive] = schema.pop(inclusive)
    if not nullable:
        return schema
    kind = schema.get("type")
    if kind is None:
        notes = {name: schema.pop(name) for name in _ANNOTATIONS if name in schema}
        return {"anyOf": [schema, {"type": "null"}], **notes}
    schema["type"] = [*(kind if isinstance(kind, list) else [kind]), "null"]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema


def _list(value: Any, document: Document, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise document.fault(f"{name} must be a list")
    return value


def _json(value: Any) -> Any:
    """YAML turns what looks like a date into one."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [_json(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(name): _json(entry) for name, entry in value.items()}
    return value
