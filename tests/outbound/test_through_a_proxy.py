"""Models, MCP servers, remote plugins, token issuers and the fetch tool behind a real proxy.

tinyproxy where the machine has it, and one of ours that resolves names as a company's does.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from sk_agents.authorization.issuer import Issuer
from sk_agents.config.settings import Settings
from sk_agents.engine.ports import Model
from sk_agents.exceptions import ModelError, ModelUnavailable, ToolError
from sk_agents.llm.failures import RetryPolicy
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint, RequestOptions
from sk_agents.outbound.certificates import ClientCertificate
from sk_agents.outbound.network import Network, read_network
from sk_agents.tools.builtin.loader import WebLimits
from sk_agents.tools.builtin.web import WebTools
from sk_agents.tools.openapi.clients import RemoteClients
from sk_agents.tools.openapi.services import load_remote_tools
from sk_agents.tools.toolbox import AgentToolbox
from tests.llm.loopback import text_of
from tests.missing import lacks
from tests.outbound.company_network import (
    NAME,
    ProxyKind,
    RunningProxy,
    Services,
    running_proxy,
    why_no_tinyproxy,
)
from tests.outbound.private_authority import PrivateAuthority
from tests.patience import seconds
from tests.tools.calls import result
from tests.tools.mcp_servers.running import running

SECRET = "user:p4ss"
ONCE = RetryPolicy(attempts=1)
PUBLIC = "93.184.215.14"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> PrivateAuthority:
    return PrivateAuthority(tmp_path_factory.mktemp("authority"))


@asynccontextmanager
async def company(
    kind: ProxyKind, folder: Path, authority: PrivateAuthority | None, **options: Any
) -> AsyncIterator[tuple[RunningProxy, Services, Network]]:
    """Services behind a proxy, over https if there is an authority."""
    if kind == "tinyproxy" and (reason := why_no_tinyproxy()):
        lacks("proxy", reason)
    async with asyncio.timeout(seconds(30)), running_proxy(kind, folder, **options) as proxy:
        services = Services(proxy.host)
        tls = authority.server_side(proxy.host) if authority else None
        async with services.serving(tls, proxy.address):
            more = {"SSL_CERT_FILE": str(authority.path)} if authority else {}
            yield proxy, services, read_network(proxy.variables(**more))


async def model_says(url: str, network: Network, **options: Any) -> str:
    async with ModelClients(network=network) as clients:
        endpoint = Endpoint(f"{url}/v1", "m", key="k", retry=ONCE, **options)
        model: Model = OpenAIChat(clients, endpoint)
        return await text_of(model)


async def mcp_says(url: str, network: Network, folder: Path) -> str:
    entry = {"name": "small", "transport": "http", "url": f"{url}/mcp", "trust_level": "trusted"}
    async with running(folder, entry, network=network) as agent:
        return (await result(agent.box, "mcp_small-greet")).content


async def plugin_says(url: str, network: Network, folder: Path) -> str:
    catalog = folder / "remote.yaml"
    entry = {"plugin_name": "weather", "openapi_json_path": f"{url}/openapi.json"}
    catalog.write_text(yaml.safe_dump({"remote_plugins": [entry]}))
    async with RemoteClients(network=network) as clients:
        tools = await asyncio.to_thread(
            load_remote_tools,
            ["weather"],
            settings=Settings(remote_plugin_path=catalog),
            agent_file=folder / "config.yaml",
            clients=clients,
        )
        return (await result(AgentToolbox(tools), "weather-today")).content


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "connect"])
@pytest.mark.parametrize("kind", ["ours", "tinyproxy"])
async def test_everything_goes_through_the_proxy(
    kind: ProxyKind, is_secure: bool, tmp_path: Path, authority: PrivateAuthority
) -> None:
    async with company(kind, tmp_path, authority if is_secure else None, credentials=SECRET) as (
        proxy,
        services,
        network,
    ):
        place = f"{services.host}:{services.url.rpartition(':')[2]}"
        wanted = f"CONNECT {place} " if is_secure else f"http://{place}/"
        assert await model_says(services.url, network) == "hello"
        assert await mcp_says(services.url, network, tmp_path) == "good day"
        assert await plugin_says(services.url, network, tmp_path) == "sunny"
        if is_secure:
            issuer = Issuer(
                f"{services.url}/realm/.well-known/openid-configuration", network=network
            )
            assert (await issuer.key("key-0")).key_id == "key-0"
        paths = {request.path for request in services.requests}
        assert {"/v1/chat/completions", "/mcp", "/openapi.json", "/weather"} <= paths
        lines = proxy.requests()
        assert len(lines) >= 4
        assert all(wanted in line for line in lines), lines
        assert not any("Proxy-Authorization" in request.headers for request in services.requests)


async def test_proxy_that_is_spoken_to_over_tls_is_used(
    tmp_path: Path, authority: PrivateAuthority
) -> None:
    outer = authority.server_side("127.0.0.1")
    async with company("ours", tmp_path, authority, tls=outer) as (proxy, services, network):
        assert await model_says(services.url, network) == "hello"
        assert await plugin_says(services.url, network, tmp_path) == "sunny"
    assert proxy.requests()


# A plain request that tinyproxy refuses may end in a reset: it does not read the rest of it.
@pytest.mark.parametrize(
    ("kind", "is_secure"), [("ours", False), ("ours", True), ("tinyproxy", True)]
)
async def test_proxy_that_wants_other_credentials_is_named_once_and_without_them(
    kind: ProxyKind, is_secure: bool, tmp_path: Path, authority: PrivateAuthority
) -> None:
    async with company(kind, tmp_path, authority if is_secure else None, credentials=SECRET) as (
        proxy,
        services,
        _,
    ):
        wrong = proxy.url.replace("p4ss", "n0pe")
        network = read_network({"HTTP_PROXY": wrong, "HTTPS_PROXY": wrong})
        with pytest.raises(ModelError, match="the proxy") as error:
            await model_says(services.url, network)
        assert "n0pe" not in str(error.value)
        assert len(proxy.requests()) == 1
        assert services.requests == []


@pytest.mark.parametrize("entry", [NAME, ".corp.test", "*.corp.test", "*"])
async def test_what_no_proxy_names_is_not_asked_of_the_proxy(entry: str, tmp_path: Path) -> None:
    async with company("ours", tmp_path, None) as (proxy, services, _):
        network = read_network(proxy.variables(NO_PROXY=entry))
        # Without the proxy its name means nothing here.
        with pytest.raises(ModelUnavailable, match="cannot be resolved"):
            async with asyncio.timeout(seconds(20)):
                await model_says(services.url, network)
        assert proxy.requests() == []


async def test_address_in_a_network_of_no_proxy_is_reached_without_it(tmp_path: Path) -> None:
    """Of another address than loopback, which never goes through a proxy."""
    async with running_proxy("ours", tmp_path) as proxy:
        found = read_network(proxy.variables(NO_PROXY="192.0.2.0/24"))
        assert found.proxy_for("http://192.0.2.9:8000/v1") is None
        assert found.proxy_for("http://198.51.100.9:8000/v1") is not None


async def test_servers_on_this_machine_need_no_entry(tmp_path: Path) -> None:
    services = Services("127.0.0.1")
    async with running_proxy("ours", tmp_path) as proxy, services.serving():
        network = read_network(proxy.variables())
        assert await model_says(services.url, network) == "hello"
        assert await mcp_says(services.url, network, tmp_path) == "good day"
        assert await plugin_says(services.url, network, tmp_path) == "sunny"
        assert proxy.requests() == []


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"])
async def test_private_authority_is_trusted_by_each_variable(
    variable: str, tmp_path: Path, authority: PrivateAuthority
) -> None:
    place = authority.hashed_folder() if variable == "SSL_CERT_DIR" else authority.path
    network = read_network({variable: str(place)})
    services = Services("127.0.0.1")
    async with services.serving(authority.server_side("127.0.0.1")):
        assert await model_says(services.url, network) == "hello"
        assert await mcp_says(services.url, network, tmp_path) == "good day"
        assert await plugin_says(services.url, network, tmp_path) == "sunny"
        issuer = Issuer(f"{services.url}/realm/.well-known/openid-configuration", network=network)
        assert await issuer.name() == f"{services.url}/realm"


async def test_unknown_authority_is_an_error_that_says_what_to_set(
    authority: PrivateAuthority,
) -> None:
    services = Services("127.0.0.1")
    async with services.serving(authority.server_side("127.0.0.1")):
        with pytest.raises(ModelUnavailable, match="SSL_CERT_FILE") as error:
            await model_says(services.url, Network())
    # Trying again would not help.
    assert error.value.attributes["is_final"]


async def test_server_that_wants_a_client_certificate_gets_it(
    tmp_path: Path, authority: PrivateAuthority
) -> None:
    shown = ClientCertificate(authority.signed("teal"))
    trusted = {"SSL_CERT_FILE": str(authority.path)}
    services = Services("127.0.0.1")
    async with services.serving(authority.server_side("127.0.0.1", wants_certificate=True)):
        network = read_network(trusted, shown)
        own = RequestOptions(certificate=shown)
        assert await model_says(services.url, network) == "hello"
        assert await mcp_says(services.url, network, tmp_path) == "good day"
        assert await plugin_says(services.url, network, tmp_path) == "sunny"
        assert await model_says(services.url, read_network(trusted), options=own) == "hello"
        with pytest.raises(ModelUnavailable, match="cannot be reached"):
            await model_says(services.url, read_network(trusted))


async def fetched(network: Network, services: Services, *addresses: str) -> str:
    """The page, by a resolver that says these addresses for its name."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        if not addresses:
            raise OSError
        return addresses

    limits = WebLimits(allow=(services.url,))
    return await WebTools(limits, resolve, network=network).http_get(f"{services.url}/page")


async def test_fetch_tool_gives_the_proxy_the_address_that_was_checked(tmp_path: Path) -> None:
    async with company("ours", tmp_path, None) as (proxy, services, network):
        assert await fetched(network, services, PUBLIC) == "sunny"
        port = services.url.rpartition(":")[2]
        assert proxy.requests() == [f"GET http://{PUBLIC}:{port}/page HTTP/1.1"]
        assert services.requests[0].headers["Host"] == f"{NAME}:{port}"


@pytest.mark.parametrize("address", ["10.0.0.5", "169.254.169.254", "127.0.0.1", ""])
async def test_fetch_tool_asks_no_proxy_for_what_it_may_not_reach_or_cannot_check(
    address: str, tmp_path: Path
) -> None:
    async with company("ours", tmp_path, None) as (proxy, services, network):
        with pytest.raises(ToolError, match="not a public address|cannot be resolved"):
            await fetched(network, services, *filter(None, [address]))
        assert proxy.requests() == []


async def test_fetch_tool_checks_the_certificate_against_the_name(
    tmp_path: Path, authority: PrivateAuthority
) -> None:
    async with company("ours", tmp_path, authority) as (proxy, services, network):
        assert await fetched(network, services, PUBLIC) == "sunny"
        port = services.url.rpartition(":")[2]
        assert proxy.requests() == [f"CONNECT {PUBLIC}:{port} HTTP/1.1"]
        async with Services().serving(authority.server_side("other.corp.test")) as impostor:
            with pytest.raises(ToolError, match="cannot be reached"):
                await fetched(network, impostor, PUBLIC)
            assert impostor.requests == []
