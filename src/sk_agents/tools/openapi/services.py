"""Remote plugins: services with an OpenAPI document, named in the catalog of remote plugins.

The catalog is the operator's and may point anywhere. What a document says is believed as far as
it concerns its own service: one that was fetched cannot send us to another host.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from sk_agents.config.settings import Settings, environment
from sk_agents.config.strict_yaml import read_yaml
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.outbound.network import Network
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.openapi.document import (
    MAX_BYTES,
    OpenApiDocument,
    parsed_document,
    read_document,
)
from sk_agents.tools.openapi.operations import operations_of
from sk_agents.tools.openapi.tool import RemotePlugin, RemoteTool, origin_of
from sk_agents.tools.operator_config import StrictModel, filled_headers, problems_of

VARIABLE = "TA_REMOTE_PLUGIN_PATH"
FETCH_SECONDS = 20.0
MOST_NAME = 64


class _Document(StrictModel):
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
        place, reason = next(problems_of(error))
        raise _fault(path, f"{place.removeprefix('.') or 'document'}: {reason}") from None
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
    environ = environment([path, agent_file])
    headers = filled_headers(plugin.headers, f"{VARIABLE}: {path}: {place}: ", environ)
    forwards = plugin.forward_authorization
    service = plugin.model_copy(
        update={
            "headers": headers,
            "redirect_hosts": tuple(host.lower() for host in plugin.redirect_hosts),
            "forward_authorization": plugin.requires_authorization
            if forwards is None
            else forwards,
        }
    )
    try:
        document = _document(service, path, clients.network)
        tools: dict[str, RemoteTool] = {}
        hidden = frozenset(name.lower() for name in headers)
        for operation in operations_of(
            document, server_url=plugin.server_url, hidden_headers=hidden
        ):
            _refuse_elsewhere(document, operation.server, service)
            clients.addresses.setdefault(plugin.plugin_name, operation.server)
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


def _document(service: RemotePlugin, path: Path, network: Network) -> OpenApiDocument:
    source = service.openapi_json_path
    if "://" not in source:
        return read_document(_file(Path(source).expanduser(), path))
    if origin_of(source) is None:
        raise ConfigurationError(f"openapi_json_path: {_shown(source)} is not a usable URL")
    # A key for the service is not for another host that keeps its document.
    is_same = service.server_url is None or origin_of(service.server_url) == origin_of(source)
    data = _fetch(source, service.headers if is_same else {}, service, network)
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


def _fetch(url: str, headers: Mapping[str, str], service: RemotePlugin, network: Network) -> bytes:
    # aiohttp takes a fifth of a second to import, which servers without remote tools save.
    from sk_agents.tools.openapi.http import RequestBounds, fetched  # noqa: PLC0415

    seconds = min(FETCH_SECONDS, service.timeout)
    bounds = RequestBounds(seconds, MAX_BYTES, service.redirect_hosts)
    # In a thread: an event loop may be running already.
    with ThreadPoolExecutor(1) as threads:
        work = threads.submit(lambda: asyncio.run(fetched(url, headers, bounds, network)))
        try:
            answer = work.result()
        except ToolError as error:
            raise ConfigurationError(f"{_shown(url)} cannot be fetched: {error}") from None
    if not answer.is_good:
        raise ConfigurationError(f"{_shown(url)} cannot be fetched: it answers {answer.status}")
    if answer.is_cut:
        raise ConfigurationError(f"{_shown(url)}: larger than {MAX_BYTES} bytes")
    return answer.body


def _refuse_elsewhere(document: OpenApiDocument, server: str, plugin: RemotePlugin) -> None:
    if plugin.server_url is not None:
        return
    origin = origin_of(server)
    if origin is None or "?" in server or "#" in server:
        raise document.fault(f"servers: {_shown(server)} is not a usable URL")
    if document.url is None or origin == origin_of(document.url):
        return
    if not {origin[1], f"{origin[1]}:{origin[2]}"} & set(plugin.redirect_hosts):
        raise document.fault(
            f"servers leads to another host, {_shown(server)}: name it as server_url in the catalog"
        )


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


def _fault(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{VARIABLE}: {path}: {reason}")
