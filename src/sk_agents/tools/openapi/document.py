"""An OpenAPI document: how it is read, its references followed and its schemas written out.

Only the document itself is read: a reference that leads out of it is an error, never a fetch.
Schemas become the JSON schemas that models and validators read, each complete in itself. A schema
that contains itself is written out once; what would follow is left open. Keywords that say nothing
about a request (examples, XML, links) are left out: they would cost tokens in every prompt.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sk_agents.config.strict_yaml import read_yaml
from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.operator_config import parsed_json

MAX_BYTES = 16 * 1024 * 1024
MOST_HOPS = 32
_VERSION = re.compile(r"3\.[01](\.\d+)?")

MOST_NODES = 5_000
MOST_DEPTH = 48

_ANNOTATIONS = ("title", "description", "default")
_VALUES = {
    *_ANNOTATIONS,
    *("type", "enum", "const", "format", "required", "pattern", "multipleOf", "uniqueItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"),
}
_ONE = {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
_SEVERAL = {"allOf", "anyOf", "oneOf", "prefixItems"}
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_AGAIN = "As above, once more inside itself."


@dataclass(frozen=True, slots=True)
class OpenApiDocument:
    """`source` is the file or URL it came from, for messages; `url` only in the second case."""

    content: Mapping[str, Any]
    source: str
    url: str | None = None

    def target(self, reference: object) -> Any:
        """What a `$ref` of this document leads to.

        Raises:
            ConfigurationError: it leads out of the document, or nowhere.
        """
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise self.fault(f"$ref {ascii(str(reference)[:200])} leads out of the document")
        found: Any = self.content
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            raise self.fault(f"$ref '{reference[:200]}' is not a path")
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise self.fault(f"$ref '{reference[:200]}' leads nowhere")
        return found

    def followed(self, value: Any) -> Any:
        """The value itself, or what it refers to, however many references lie between.

        Raises:
            ConfigurationError: as `target`, or they go round in a circle.
        """
        for _ in range(MOST_HOPS):
            if not isinstance(value, Mapping) or "$ref" not in value:
                return value
            value = self.target(value["$ref"])
        raise self.fault("$ref goes round in a circle")

    def mapping(self, value: Any, place: str) -> Mapping[str, Any]:
        """Followed, and a mapping; nothing at all is an empty one.

        Raises:
            ConfigurationError: it is something else.
        """
        found = self.followed(value)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise self.fault(f"{place} must be a mapping")
        return found

    def fault(self, reason: str) -> ConfigurationError:
        return ConfigurationError(f"{self.source}: {reason}")


def read_document(path: Path) -> OpenApiDocument:
    """The document in a JSON or YAML file.

    Raises:
        ConfigurationError: it cannot be read, or is no OpenAPI 3.0 or 3.1 document.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or 'cannot be read'}") from None
    return parsed_document(data, str(path), path=path)


def parsed_document(
    data: bytes, source: str, *, url: str | None = None, path: Path | None = None
) -> OpenApiDocument:
    """The document in these bytes; `path` is where they lie on disk, if they do.

    Raises:
        ConfigurationError: as `read_document`.
    """
    if len(data) > MAX_BYTES:
        raise ConfigurationError(f"{source}: larger than {MAX_BYTES} bytes")
    if data.lstrip()[:1] == b"{":
        try:
            content = parsed_json(data)
        except ValueError as error:
            raise ConfigurationError(f"{source}: {error}") from None
    elif data.lstrip()[:1] == b"<":
        raise ConfigurationError(f"{source}: is a web page, not an OpenAPI document")
    else:
        content = read_yaml(path, strict=False) if path is not None else _parsed_yaml(data, source)
    if not isinstance(content, Mapping):
        raise ConfigurationError(f"{source}: is not an OpenAPI document")
    document = OpenApiDocument(content, source, url)
    version = str(content.get("openapi", content.get("swagger", "")))
    if not _VERSION.fullmatch(version):
        found = f"'{version[:20]}'" if version else "nothing"
        raise document.fault(f"openapi must be 3.0 or 3.1, and is {found}")
    return document


def _parsed_yaml(data: bytes, source: str) -> Any:
    # Our strict reader knows files only.
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        try:
            return read_yaml(Path(file.name), strict=False)
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace(file.name, source)) from None


class SchemaTooLarge(ConfigurationError):
    """Written out, the schema is too large for a prompt."""


class SchemaWriter:
    """Writes out the schemas of one operation; together they have a bounded size."""

    def __init__(self, document: OpenApiDocument) -> None:
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
        result = {name: _json_value(schema[name]) for name in schema if name in _VALUES}
        for name in schema:
            if name in _ONE:
                result[name] = self.written(schema[name], inside, depth + 1)
            elif name in _SEVERAL:
                if not isinstance(schema[name], list):
                    raise self._document.fault(f"{name} must be a list")
                result[name] = [self.written(entry, inside, depth + 1) for entry in schema[name]]
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
        notes = {name: _json_value(beside.pop(name)) for name in _ANNOTATIONS if name in beside}
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


def _json_value(value: Any) -> Any:
    """YAML turns what looks like a date into one."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [_json_value(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(name): _json_value(entry) for name, entry in value.items()}
    return value
