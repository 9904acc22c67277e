"""One operation of a remote service, and the request that a call of it becomes.

The host is the configuration's: whatever a model puts into an argument ends as one segment of the
path, one value of the query, one header or a part of the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, unquote, urlencode

from sk_agents.exceptions import ToolError

MOST_DECODED = 5
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_DELIMITERS = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}

Place = Literal["path", "query", "header"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """`argument` is what the model calls it, `name` what the service does."""

    argument: str
    name: str
    place: Place
    schema: Any
    required: bool
    style: str
    explode: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Body:
    """Its fields by their arguments, or, where there are none, all of it as one argument."""

    media_type: str
    fields: Mapping[str, str]
    argument: str | None
    schema: Mapping[str, Any]
    required: bool


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    method: str
    server: str
    path: str
    description: str
    parameters: tuple[Parameter, ...]
    body: Body | None

    @property
    def place(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def schema(self) -> dict[str, Any]:
        """The arguments as one object."""
        properties = {entry.argument: entry.schema for entry in self.parameters}
        required = [entry.argument for entry in self.parameters if entry.required]
        if self.body is not None and self.body.argument is not None:
            properties[self.body.argument] = self.body.schema
            required += [self.body.argument] if self.body.required else []
        elif self.body is not None:
            names = set(self.body.schema.get("required", ()))
            for argument, name in self.body.fields.items():
                properties[argument] = self.body.schema["properties"][name]
                required += [argument] if name in names else []
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class Request:
    """`url` is encoded already."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


def request_of(operation: Operation, arguments: Mapping[str, Any]) -> Request:
    """The request for checked arguments.

    Raises:
        ToolError: a value that cannot be sent where it belongs. The text is for the model.
    """
    path = operation.path
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if value is None and not parameter.required:
            continue
        match parameter.place:
            case "path":
                path = path.replace(f"{{{parameter.name}}}", _segment(parameter, value))
            case "query":
                query.extend(_pairs(parameter, value))
            case "header":
                headers[parameter.name] = _header(parameter, value)
    body = _body(operation.body, arguments)
    if body is not None and operation.body is not None:
        headers["Content-Type"] = operation.body.media_type
    encoded = urlencode(query, quote_via=quote)
    url = operation.server.rstrip("/") + quote(path, safe="/%:@!$&'()*+,;=~")
    return Request(operation.method, f"{url}?{encoded}" if encoded else url, headers, body)


def _segment(parameter: Parameter, value: Any) -> str:
    text = _joined(parameter, value)
    decoded = text
    for _ in range(MOST_DECODED):
        decoded = unquote(decoded)
    # Whoever decodes more than once must not find a way out of the path either.
    if not text or {".", ".."} & set(re.split(r"[/\\]", decoded)):
        raise ToolError(f"{parameter.argument}: cannot be part of a path.")
    return quote(text, safe="")


def _header(parameter: Parameter, value: Any) -> str:
    text = _joined(parameter, value)
    if not _HEADER_VALUE.fullmatch(text):
        raise ToolError(f"{parameter.argument}: only printable ASCII can be sent in a header.")
    return text


def _pairs(parameter: Parameter, value: Any) -> Iterator[tuple[str, str]]:
    name = parameter.name
    if parameter.as_json:
        yield name, _json(value)
    elif isinstance(value, Mapping) and parameter.style == "deepObject":
        yield from ((f"{name}[{key}]", _text(entry)) for key, entry in value.items())
    elif isinstance(value, Mapping) and parameter.explode:
        yield from ((str(key), _text(entry)) for key, entry in value.items())
    elif isinstance(value, list) and parameter.explode:
        yield from ((name, _text(entry)) for entry in value)
    else:
        yield name, _joined(parameter, value)


def _joined(parameter: Parameter, value: Any) -> str:
    if parameter.as_json:
        return _json(value)
    between = _DELIMITERS.get(parameter.style, ",")
    if isinstance(value, list):
        return between.join(map(_text, value))
    if isinstance(value, Mapping):
        within = "=" if parameter.explode else between
        return between.join(f"{key}{within}{_text(entry)}" for key, entry in value.items())
    return _text(value)


def _body(body: Body | None, arguments: Mapping[str, Any]) -> bytes | None:
    if body is None:
        return None
    content: Any
    if body.argument is not None:
        if body.argument not in arguments:
            return None
        content = arguments[body.argument]
    else:
        content = {name: arguments[key] for key, name in body.fields.items() if key in arguments}
        if not content and not body.required:
            return None
    if body.media_type.startswith("text/") and isinstance(content, str):
        return content.encode(errors="replace")
    return _json(content).encode()


def _text(value: Any) -> str:
    if isinstance(value, str):
        # Half of a surrogate pair cannot be sent.
        return value.encode(errors="replace").decode()
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
