"""The operations of an OpenAPI document: what a model may ask for, and what becomes of it.

Path, query and header parameters and the fields of a JSON body become the arguments of one tool.
An operation that cannot be called in this way is left out with a warning; a document that
contradicts itself stops the start.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.openapi.document import Document
from sk_agents.tools.openapi.operation import Body, Operation, Parameter, Place
from sk_agents.tools.openapi.schema import SchemaTooLarge, SchemaWriter

logger = logging.getLogger(__name__)

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
PAYLOAD = "payload"
MOST_DESCRIPTION = 1024
# Set by us, or never by a model: they decide where a request goes and what it means.
OWN_HEADERS = {
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_PLACES = ("path", "query", "header")
_STYLES = {
    "path": {"simple"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
    "header": {"simple"},
}
_ARGUMENT = re.compile(r"[^A-Za-z0-9_]+")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_IN_PATH = re.compile(r"\{([^{}]*)\}")
_JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)


class _Unusable(Exception):
    """Nothing is wrong with the document; we just cannot call this."""


def operations_of(
    document: Document, *, server_url: str | None, hidden_headers: frozenset[str] = frozenset()
) -> Iterator[Operation]:
    """Each operation that can be called, in the document's order.

    `hidden_headers` (lower case) are filled by the operator and not shown to a model.

    Raises:
        ConfigurationError: the document is broken, or does not say where the service is.
    """
    paths = document.mapping(document.content.get("paths"), "paths")
    for path, entry in paths.items():
        if str(path).startswith("x-"):
            continue
        item = document.mapping(entry, f"paths.{path}")
        if not str(path).startswith("/") or {"?", "#"} & set(str(path)):
            raise document.fault(f"paths.{path} must be a path that starts with '/'")
        for method in METHODS:
            if method not in item:
                continue
            reader = _Reader(document, str(path), method, item, hidden_headers)
            try:
                yield reader.operation(server_url)
            except (_Unusable, SchemaTooLarge) as error:
                logger.warning(
                    "%s: %s %s is left out: %s", document.source, method.upper(), path, error
                )


class _Reader:
    def __init__(
        self,
        document: Document,
        path: str,
        method: str,
        item: Mapping[str, Any],
        hidden_headers: frozenset[str],
    ) -> None:
        self._document = document
        self._path, self._method, self._item = path, method, item
        self._hidden = hidden_headers
        self._place = f"paths.{path}.{method}"
        self._details = document.mapping(item[method], self._place)
        self._writer = SchemaWriter(document)

    def operation(self, server_url: str | None) -> Operation:
        parameters = self._parameters()
        return Operation(
            name=self._name(),
            method=self._method.upper(),
            server=server_url or self._server(),
            path=self._path,
            description=self._description(),
            parameters=parameters,
            body=self._body({entry.argument for entry in parameters}),
        )

    def _name(self) -> str:
        given = self._details.get("operationId") or f"{self._method}{self._path}"
        cleaned = re.sub(r"[^A-Za-z0-9_-]+", "_", str(given)).strip("_-")
        if not cleaned:
            raise self._fault("operationId has no letter that a tool's name may have")
        return cleaned

    def _description(self) -> str:
        texts = [self._details.get("summary"), self._details.get("description")]
        whole = "\n".join(dict.fromkeys(str(text).strip() for text in texts if text))
        return (whole or f"{self._method.upper()} {self._path}")[:MOST_DESCRIPTION]

    def _parameters(self) -> tuple[Parameter, ...]:
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        # An operation's own parameter takes the place of its path's.
        for source in (self._item, self._details):
            entries = source.get("parameters", [])
            if not isinstance(entries, list):
                raise self._fault("parameters must be a list")
            for entry in entries:
                details = self._document.mapping(entry, f"{self._place}.parameters")
                name, place = details.get("name"), details.get("in")
                if not isinstance(name, str) or not name or not isinstance(place, str):
                    raise self._fault("a parameter needs 'name' and 'in'")
                found[place, name] = details
        taken: set[str] = set()
        usable = [
            self._parameter(place, name, details, taken)
            for (place, name), details in found.items()
            if self._is_offered(place, name, details)
        ]
        declared = {entry.name for entry in usable if entry.place == "path"}
        if declared != set(_IN_PATH.findall(self._path)):
            raise self._fault("the path's parameters are not those in its braces")
        return tuple(usable)

    def _is_offered(self, place: str, name: str, details: Mapping[str, Any]) -> bool:
        header = name.lower() if place == "header" else None
        if header is not None and not _TOKEN.fullmatch(header):
            raise self._fault(f"no header can be named {ascii(name[:64])}")
        if place in _PLACES and header not in OWN_HEADERS:
            return header not in self._hidden
        if details.get("required") is True and header not in {
            "accept",
            "authorization",
            "content-type",
            *self._hidden,
        }:
            raise _Unusable(f"it needs the {place} parameter '{name}'")
        return False

    def _parameter(
        self, place: str, name: str, details: Mapping[str, Any], taken: set[str]
    ) -> Parameter:
        cleaned = _ARGUMENT.sub("_", name)
        argument = cleaned if cleaned not in taken else f"{place}_{cleaned}"
        if argument in taken:
            raise self._fault(f"two parameters are named '{argument}'")
        taken.add(argument)
        content = details.get("content")
        style = str(details.get("style", "form" if place == "query" else "simple"))
        if style not in _STYLES[place]:
            raise _Unusable(f"parameter '{name}' has the style '{style}'")
        source = details.get("schema", {})
        if isinstance(content, Mapping):
            if not any(map(_JSON_TYPE.match, content)):
                raise _Unusable(f"parameter '{name}' is not JSON")
            source = next(iter(content.values())).get("schema", {})
        schema = self._writer.written(source)
        if "description" in details and isinstance(schema, dict):
            schema["description"] = str(details["description"])
        if place == "path" and details.get("required") is not True:
            raise self._fault(f"path parameter '{name}' must be required")
        return Parameter(
            argument,
            name,
            _place(place),
            schema,
            required=details.get("required") is True,
            style=style,
            explode=details.get("explode", style in {"form", "deepObject"}) is True,
            as_json=isinstance(content, Mapping),
        )

    def _body(self, taken: set[str]) -> Body | None:
        details = self._document.mapping(
            self._details.get("requestBody"), f"{self._place}.requestBody"
        )
        if not details:
            return None
        required = details.get("required") is True
        content = self._document.mapping(details.get("content"), f"{self._place}.content")
        media = next((name for name in content if _JSON_TYPE.match(name)), None)
        if media is None:
            media = next((name for name in content if name.startswith("text/plain")), None)
        if media is None:
            if required:
                raise _Unusable("it needs a body that is neither JSON nor text")
            return None
        source = self._document.mapping(content[media], f"{self._place}.content").get("schema", {})
        schema = self._writer.written(source)
        fields = self._fields(schema, required=required, taken=taken)
        if fields is not None:
            return Body(media, fields, None, schema, required)
        if isinstance(schema, dict) and details.get("description"):
            schema.setdefault("description", str(details["description"]))
        argument = PAYLOAD if PAYLOAD not in taken else f"body_{PAYLOAD}"
        return Body(media, {}, argument, schema, required)

    def _fields(self, schema: Any, *, required: bool, taken: set[str]) -> dict[str, str] | None:
        """The body's fields by their arguments, if they can stand beside the parameters."""
        if not isinstance(schema, dict) or schema.get("type") != "object":
            return None
        properties = schema.get("properties")
        is_open = isinstance(schema.get("additionalProperties"), dict)
        is_composed = schema.keys() & {"allOf", "anyOf", "oneOf", "not", "if"}
        # Beside an optional body its required fields would be required without it, too.
        is_conditional = not required and bool(schema.get("required"))
        if not properties or is_open or is_composed or is_conditional:
            return None
        fields = {_ARGUMENT.sub("_", name): name for name in properties}
        clashes = fields.keys() & taken or len(fields) != len(properties)
        return None if clashes else fields

    def _server(self) -> str:
        for source in (self._details, self._item, self._document.content):
            servers = source.get("servers")
            if servers:
                break
        else:
            servers = [{"url": "/"}]
        if not isinstance(servers, list) or not isinstance(servers[0], Mapping):
            raise self._fault("servers must be a list of servers")
        url = str(servers[0].get("url", "/"))
        variables = self._document.mapping(servers[0].get("variables"), "servers[0].variables")
        for name, details in variables.items():
            default = details.get("default", "") if isinstance(details, Mapping) else ""
            url = url.replace(f"{{{name}}}", str(default))
        if self._document.url is not None:
            url = urljoin(self._document.url, url)
        if urlsplit(url).scheme not in {"http", "https"}:
            raise self._fault("does not say where the service is; set server_url in the catalog")
        return url

    def _fault(self, reason: str) -> ConfigurationError:
        return self._document.fault(f"{self._place}: {reason}")


def _place(place: str) -> Place:
    match place:
        case "path" | "query" | "header":
            return place
        case _:
            raise AssertionError(place)
