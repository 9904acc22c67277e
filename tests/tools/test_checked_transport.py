"""Where an MCP server may send us to sign users in, and how much it may answer."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest
from aiohttp import web

from sk_agents.exceptions import ToolError
from sk_agents.outbound.network import Network, read_network
from sk_agents.tools.mcp.checked_transport import MOST_BYTES, CheckedTransport
from sk_agents.tools.mcp.config import McpServer
from tests.outbound.company_network import NAME, Services, running_proxy
from tests.outbound.private_authority import PrivateAuthority
from tests.patience import seconds

PUBLIC = "93.184.215.14"
ELSEWHERE = McpServer(name="far", transport="http", url="https://mcp.example/mcp")
HERE = McpServer(name="near", transport="http", url="http://127.0.0.1:9/mcp")


def client(server: McpServer, network: Network, *addresses: str) -> httpx2.AsyncClient:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    transport = CheckedTransport(server, network, network.context(), resolve=resolve)
    return httpx2.AsyncClient(transport=transport, timeout=seconds(10))


async def test_named_place_is_reached_at_the_address_that_was_checked(tmp_path: Path) -> None:
    authority = PrivateAuthority(tmp_path)
    async with (
        running_proxy("ours", tmp_path) as proxy,
        Services().serving(authority.server_side(NAME)) as services,
    ):
        network = read_network(proxy.variables(SSL_CERT_FILE=str(authority.path)))
        async with client(ELSEWHERE, network, PUBLIC) as http:
            assert (await http.get(f"{services.url}/page")).text == "sunny"
        port = services.url.rpartition(":")[2]
        assert proxy.requests() == [f"CONNECT {PUBLIC}:{port} HTTP/1.1"]
        assert services.requests[0].host == f"{NAME}:{port}"


async def test_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    authority = PrivateAuthority(tmp_path)
    async with (
        running_proxy("ours", tmp_path) as proxy,
        Services().serving(authority.server_side("other.corp.test", PUBLIC)) as services,
    ):
        network = read_network(proxy.variables(SSL_CERT_FILE=str(authority.path)))
        async with client(ELSEWHERE, network, PUBLIC) as http:
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                await http.get(f"{services.url}/page")
        assert services.requests == []


@pytest.mark.parametrize(
    ("server", "url", "address"),
    [
        (ELSEWHERE, "https://login.example/token", "169.254.169.254"),
        (ELSEWHERE, "http://login.example/token", PUBLIC),
        (ELSEWHERE, "https://127.0.0.1/token", "127.0.0.1"),
        (HERE, "https://login.example/token", "127.0.0.1"),
    ],
    ids=["metadata service", "not https", "this machine", "a name of this machine"],
)
async def test_place_that_is_not_public_is_refused(
    server: McpServer, url: str, address: str
) -> None:
    async with client(server, Network(), address) as http:
        with pytest.raises(ToolError, match="name it as auth_server"):
            await http.get(url)


@pytest.mark.parametrize("is_compressed", [False, True], ids=["endless", "compressed"])
async def test_answer_of_any_size_breaks_off(is_compressed: bool) -> None:
    taken = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal taken
        response = web.StreamResponse()
        if is_compressed:
            response.headers["Content-Encoding"] = "gzip"
        response.enable_chunked_encoding()
        await response.prepare(request)
        for _ in range(64):
            await response.write(b" " * 1024 * 1024)
            taken += 1
        return response

    app = web.Application()
    app.router.add_get("/", endless)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with asyncio.timeout(seconds(20)), client(HERE, Network()) as http:
            with pytest.raises(httpx2.RemoteProtocolError, match="compressed|more than"):
                await http.get(f"http://127.0.0.1:{port}/")
    finally:
        await runner.cleanup()
    assert taken < 4 * MOST_BYTES // (1024 * 1024)
