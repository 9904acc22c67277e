"""HTTP to addresses that a server named, not the operator, and answers of any size.

Such an address must be https and public; the connection goes to the very address that was checked,
also through a proxy.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx2

from sk_agents.exceptions import ToolError
from sk_agents.outbound.network import Network
from sk_agents.tools.addresses import (
    USUAL_PORTS,
    AllowedUrls,
    CheckedAddress,
    Resolve,
    checked_address,
    system_addresses,
)
from sk_agents.tools.mcp.config import McpServer

MOST_BYTES = 4 * 1024 * 1024
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Leads to the server, to its `auth_server`, to this machine if the server is on it, and to
    the public network."""

    def __init__(
        self,
        server: McpServer,
        network: Network,
        context: ssl.SSLContext,
        *,
        resolve: Resolve = system_addresses,
    ) -> None:
        assert server.url is not None
        self._network = network
        self._context = context
        self._resolve = resolve
        self._trusted = {_origin(server.url)}
        self._is_local = urlsplit(server.url).hostname in LOOPBACK
        if server.auth_server is not None:
            self._trusted.add(_origin(server.auth_server))
        self._inner: list[httpx2.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises ToolError: the address may not be asked for."""
        url = str(request.url)
        inner = httpx2.AsyncHTTPTransport(verify=self._context, proxy=proxy_of(self._network, url))
        self._inner.append(inner)
        if not self._is_trusted(url):
            request = _pinned(request, await self._checked(url))
        response = await inner.handle_async_request(request)
        await refuse_compressed(response)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = BoundedStream(response.stream)
        return response

    async def aclose(self) -> None:
        for inner in self._inner:
            await inner.aclose()

    def _is_trusted(self, url: str) -> bool:
        on_this_machine = self._is_local and urlsplit(url).hostname in LOOPBACK
        return on_this_machine or _origin(url) in self._trusted

    async def _checked(self, url: str) -> CheckedAddress:
        parts = urlsplit(url)
        allow = AllowedUrls(frozenset({"https"}), frozenset({parts.port or 443}))
        try:
            return await checked_address(url, allow=allow, resolve=self._resolve)
        except ToolError as error:
            raise ToolError(
                f"{parts.hostname} is asked for by the server: {error} If it is right, "
                "name it as auth_server."
            ) from error


def proxy_of(network: Network, url: str) -> httpx2.Proxy | None:
    proxy = network.proxy_for(url)
    if proxy is None:
        return None
    auth = None if proxy.user is None else (proxy.user, proxy.password)
    return httpx2.Proxy(proxy.url, auth=auth)


async def refuse_compressed(response: httpx2.Response) -> None:
    """Raises httpx2.RemoteProtocolError: it is compressed, so that its size says nothing."""
    if response.headers.get("content-encoding", "identity") != "identity":
        await response.aclose()
        raise httpx2.RemoteProtocolError("the answer is compressed, unasked")


class BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for part in self._inner:
            left -= len(part)
            if left < 0:
                raise httpx2.RemoteProtocolError(f"the answer has more than {MOST_BYTES} bytes")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


def _pinned(request: httpx2.Request, checked: CheckedAddress) -> httpx2.Request:
    """To the address that was checked; the certificate must still be the name's."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=checked.addresses[0]),
        headers=request.headers,  # `Host` among them
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": checked.host},
    )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or USUAL_PORTS.get(parts.scheme)}"
