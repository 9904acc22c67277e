"""A server behind a URL: bounded answers, the operator's headers, and whose call it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import httpx2
from mcp.client import Transport
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client

from sk_agents.tools.mcp.calls import CURRENT
from sk_agents.tools.mcp.config import McpServer

MOST_BYTES = 4 * 1024 * 1024
# Of these it is certain that no byte of the request has left.
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# Left as it is in a user's id; the rest is percent-encoded, since a header is ASCII.
_PLAIN = "!#$&'()*+,/:;=?@[] "


def http_transport(server: McpServer) -> Transport:
    return _transport(server)


@asynccontextmanager
async def _transport(server: McpServer) -> AsyncGenerator[TransportStreams]:
    assert server.url is not None
    header = server.user_id_header

    async def say_whose(request: httpx2.Request) -> None:
        call = CURRENT.get()
        if header is not None and call is not None and call.user is not None:
            request.headers[header] = quote(call.user, safe=_PLAIN)

    client = httpx2.AsyncClient(
        # What is compressed could be any size.
        headers={**server.headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(server.timeout, read=server.sse_read_timeout),
        transport=_Bounded(httpx2.AsyncHTTPTransport(verify=server.verify_ssl)),
        event_hooks={"request": [say_whose]},
    )
    async with (
        client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=MOST_BYTES
        ) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """Whole answers end at a bound; of streams each event has its own."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._sent(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is compressed, unasked")
        kind = response.headers.get("content-type", "")
        if not kind.lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Cut(response.stream)
        return response

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        call = CURRENT.get()
        if call is None:
            return await self._inner.handle_async_request(request)
        before, call.is_sent = call.is_sent, True
        try:
            response = await self._inner.handle_async_request(request)
        except NOT_SENT:
            call.is_sent = before
            raise
        if response.status_code == 404 and MCP_SESSION_ID in request.headers:
            call.is_disowned = True
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Cut(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for part in self._inner:
            left -= len(part)
            if left < 0:
                raise httpx2.StreamError(f"the answer has more than {MOST_BYTES} bytes")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
