"""Remote plugins: services with an OpenAPI document, named in the catalog of remote plugins.

The catalog is the operator's and may point anywhere. What a document says is believed as far as
it concerns its own service: one that was fetched cannot send us to another host.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, field_validator

from sk_agents.config.settings import Settings, environment
from sk_agents.config.strict_yaml import read_yaml
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.openapi.document import (
    MAX_BYTES,
    OpenApiDocument,
    parsed_document,
    read_document,
)
from sk_agents.tools.openapi.operations import operations_of
from sk_agents.tools.openapi.tool import RemoteClients, RemoteService, RemoteTool

VARIABLE = "TA_REMOTE_PLUGIN_PATH"
FETCH_SECONDS = 20.0
MOST_NAME = 64
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


class RemotePlugin(BaseModel):
    """One entry of the catalog."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )

    # The part before the first '-' of a tool's name.
    plugin_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,40}$")]
    openapi_json_path: Annotated[str, Field(min_length=1)]
    server_url: str | None = None
    headers: dict[str, str] = {}
    timeout: Annotated[float, Field(gt=0, le=3600)] = 30.0
    max_bytes: Annotated[int, Field(ge=1, le=64 * 1024 * 1024)] = 256 * 1024
    redirect_hosts: tuple[str, ...] = ()
    requires_approval: StrictBool | None = None
    requires_authorization: StrictBool = False
    # The caller's token is for this server. Another one gets it only if the operator says so.
    forward_authorization: StrictBool | None = None

    @field_validator("server_url")
    @classmethod
    def _is_plain_url(cls, url: str | None) -> str | None:
        if url is not None and (_origin(url) is None or "?" in url or "#" in url):
            raise ValueError("must be an http or https URL without credentials, query or fragment")
        return url

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        if not all(map(_HEADER_NAME.fullmatch, headers)):
            raise ValueError("has a name that no header can have")
        return headers


class _Document(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )

    remote_plugins: tuple[RemotePlugin, ...]


def load_remote_tools(
    names: Sequence[str], *, settings: Settings, agent_file: Path, clients: RemoteClients
) -> list[RemoteTool]:
    """The tools of the remote plugins an agent file names. Documents behind a URL are fetched now.

    Raises:
        ConfigurationError: no catalog, no such plugin, or a document that cannot be used.
    """
    path = settings.remote_plugin_path
    if path is None:
        if names:
            raise ConfigurationError(f"{agent_file}: remote_plugins needs {VARIABLE}")
        return []
    catalog = clients.once(path, lambda: read_remote_catalog(path))
    tools: list[RemoteTool] = []
    for name in dict.fromkeys(names):
        if name not in catalog:
            known = ", ".join(catalog) or "none"
            raise ConfigurationError(
                f"{agent_file}: remote_plugins: '{name}' is not in {path}; there are: {known}"
            )
        # The variables that headers name may stand in a file beside the agent's.
        key = (path, agent_file.parent, name)
        tools += clients.once(key, partial(_tools, catalog[name], path, agent_file, clients))
    return tools


def read_remote_catalog(path: Path) -> dict[str, RemotePlugin]:
    """The entries by their names.

    Raises:
        ConfigurationError: missing, unreadable, or a field that does not fit.
    """
    try:
        plugins = _Document.model_validate(read_yaml(path)).remote_plugins
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = _field(problem["loc"])
        reason = problem["msg"].removeprefix("Value error, ")
        raise _fault(path, f"{field}: {reason}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{VARIABLE}: {error}") from None
    catalog: dict[str, RemotePlugin] = {}
    for number, plugin in enumerate(plugins):
        if catalog.setdefault(plugin.plugin_name, plugin) is not plugin:
            field = f"remote_plugins[{number}].plugin_name"
            raise _fault(path, f"{field}: '{plugin.plugin_name}' appears twice")
    return catalog


def _tools(
    plugin: RemotePlugin, path: Path, agent_file: Path, clients: RemoteClients
) -> list[RemoteTool]:
    place = f"plugin '{plugin.plugin_name}'"
    headers = _headers(plugin, path, environment([path, agent_file]))
    service = RemoteService(
        headers=headers,
        timeout=plugin.timeout,
        max_bytes=plugin.max_bytes,
        redirect_hosts=tuple(host.lower() for host in plugin.redirect_hosts),
        requires_approval=plugin.requires_approval,
        requires_authorization=plugin.requires_authorization,
        forward_authorization=plugin.requires_authorization
        if plugin.forward_authorization is None
        else plugin.forward_authorization,
    )
    try:
        document = _document(plugin, path, service)
        tools: dict[str, RemoteTool] = {}
        hidden = frozenset(name.lower() for name in headers)
        for operation in operations_of(
            document, server_url=plugin.server_url, hidden_headers=hidden
        ):
            _refuse_elsewhere(document, operation.server, plugin)
            name = _shortened(f"{plugin.plugin_name}-{operation.name}")
            tool = RemoteTool(name, operation, service, clients, document.source)
            first = tools.setdefault(name, tool)
            if first is not tool:
                raise document.fault(
                    f"{operation.place} and {first.origin} would both be the tool '{name}'"
                )
    except ConfigurationError as error:
        raise _fault(path, f"{place}: {error}") from error
    if not tools:
        raise _fault(path, f"{place}: {document.source} has no operation to offer")
    return list(tools.values())


def _document(plugin: RemotePlugin, path: Path, service: RemoteService) -> OpenApiDocument:
    source = plugin.openapi_json_path
    if "://" not in source:
        return read_document(_file(Path(source).expanduser(), path))
    if _origin(source) is None:
        raise ConfigurationError(f"openapi_json_path: {_shown(source)} is not a usable URL")
    # A key for the service is not for another host that keeps its document.
    is_same = plugin.server_url is None or _origin(plugin.server_url) == _origin(source)
    data = _fetch(source, service.headers if is_same else {}, service)
    return parsed_document(data, _shown(source), url=source)


def _file(named: Path, catalog: Path) -> Path:
    """A relative one lies where the catalog does, or else in the current directory, where the
    public project looks for it.

    Raises:
        ConfigurationError: it lies in neither.
    """
    beside, here = (catalog.parent / named).absolute(), named.absolute()
    if named.is_absolute() or beside == here or beside.is_file():
        return beside
    if not here.is_file():
        raise ConfigurationError(
            f"openapi_json_path: there is neither {beside} nor, from the current directory, {here}"
        )
    return here


def _fetch(url: str, headers: Mapping[str, str], service: RemoteService) -> bytes:
    # aiohttp takes a fifth of a second to import, which servers without remote tools save.
    from sk_agents.tools.openapi.http import RequestBounds, fetched  # noqa: PLC0415

    seconds = min(FETCH_SECONDS, service.timeout)
    bounds = RequestBounds(seconds, MAX_BYTES, service.redirect_hosts)
    # In a thread: an event loop may be running already.
    with ThreadPoolExecutor(1) as threads:
        work = threads.submit(lambda: asyncio.run(fetched(url, headers, bounds)))
        try:
            answer = work.result()
        except ToolError as error:
            raise ConfigurationError(f"{_shown(url)} cannot be fetched: {error}") from None
    if not answer.is_good:
        raise ConfigurationError(f"{_shown(url)} cannot be fetched: it answers {answer.status}")
    if answer.is_cut:
        raise ConfigurationError(f"{_shown(url)}: larger than {MAX_BYTES} bytes")
    return answer.body


def _headers(plugin: RemotePlugin, path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    filled = {}
    for name, value in plugin.headers.items():
        place = f"plugin '{plugin.plugin_name}': headers.{name}"
        for variable in _REFERENCE.findall(value):
            if not environ.get(variable):
                raise _fault(path, f"{place}: the environment variable {variable} is not set")
        filled[name] = _REFERENCE.sub(lambda match: environ[match[1]].strip(), value)
        if not _HEADER_VALUE.fullmatch(filled[name]):
            raise _fault(path, f"{place}: its value is no header text")
    return filled


def _refuse_elsewhere(document: OpenApiDocument, server: str, plugin: RemotePlugin) -> None:
    if plugin.server_url is not None:
        return
    origin = _origin(server)
    if origin is None or "?" in server or "#" in server:
        raise document.fault(f"servers: {_shown(server)} is not a usable URL")
    if document.url is None or origin == _origin(document.url):
        return
    allowed = {host.lower() for host in plugin.redirect_hosts}
    if not {origin[1], f"{origin[1]}:{origin[2]}"} & allowed:
        raise document.fault(
            f"servers leads to another host, {_shown(server)}: name it as server_url in the catalog"
        )


def _origin(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; `None` for what is no URL of a service."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname.lower(), port


def _shown(url: str) -> str:
    """Without what may be a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _shortened(name: str) -> str:
    """What is too long for a provider ends in a mark that keeps it apart from its like."""
    if len(name) <= MOST_NAME:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MOST_NAME - 9]}_{mark}"


def _field(place: tuple[Any, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".") or "document"


def _fault(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{VARIABLE}: {path}: {reason}")
