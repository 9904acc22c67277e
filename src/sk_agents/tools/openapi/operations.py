"""The operations of an OpenAPI document, and the requests that calls of them become.

Path, query and header parameters and the fields of a JSON body become the arguments of one tool.
The host comes from the configuration: whatever a model puts into an argument ends as one segment
of the path, one value of the query, one header or a part of the body. An operation that cannot be
called in this way is left out with a warning; a document that contradicts itself stops the start.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.openapi.document import OpenApiDocument, SchemaTooLarge, SchemaWriter

logger = logging.getLogger(__name__)

MOST_DECODED = 5
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_DELIMITERS = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}

Place = Literal["path", "query", "header"]

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
BODY_METHODS = ("post", "put", "patch")
PAYLOAD = "payload"
MOST_DESCRIPTION = 1024
# Set by us, or never by a model: they decide where a request goes and what it means.
OWN_HEADERS = {
    *("accept", "accept-encoding", "authorization", "connection", "content-encoding"),
    *("content-length", "content-type", "cookie", "expect", "host", "keep-alive"),
    *("proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
}
_STYLES = {
    "path": {"simple"},
    "query": {"form", "spaceDelimited", "pipeDelimited", "deepObject"},
    "header": {"simple"},
}
_ARGUMENT = re.compile(r"[^A-Za-z0-9_]+")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_IN_PATH = re.compile(r"\{([^{}]*)\}")
_JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)


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
class ServiceOperation:
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
class ServiceRequest:
    """`url` is encoded already."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


def request_of(operation: ServiceOperation, arguments: Mapping[str, Any]) -> ServiceRequest:
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
    return ServiceRequest(operation.method, f"{url}?{encoded}" if encoded else url, headers, body)


def _segment(parameter: Parameter, value: Any) -> str:
    text = _joined(parameter, value)
    decoded = text
    for _ in range(MOST_DECODED):
        decoded = unquote(decoded)
    # A service that decodes more than once must not find a way out of the path either.
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


class _Unusable(Exception):
    """The document is fine, but this operation cannot be called from here."""


def operations_of(
    document: OpenApiDocument,
    *,
    server_url: str | None,
    hidden_headers: frozenset[str] = frozenset(),
) -> Iterator[ServiceOperation]:
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
        document: OpenApiDocument,
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

    def operation(self, server_url: str | None) -> ServiceOperation:
        parameters = self._parameters()
        return ServiceOperation(
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
        if place in _STYLES and header not in OWN_HEADERS:
            return header not in self._hidden
        filled = {"accept", "authorization", "content-type", *self._hidden}
        if details.get("required") is True and header not in filled:
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
            cast(Place, place),
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
            # Many documents leave out `required`, and these methods mean little without a body.
            if required or (content and self._method in BODY_METHODS):
                raise _Unusable("its body is neither JSON nor text")
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
