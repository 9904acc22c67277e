"""HTTP servers whose every byte a test decides, and one request of our client to them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from sk_agents.llm.http_client import HttpClient, HttpConnection, Pool, Timeouts, request_target
from tests.patience import seconds

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_THE_END = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
QUICK = Timeouts(connect=5, idle=5, total=5)


@asynccontextmanager
async def served(
    handler: Handler, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """The address of a server that gives every connection to `handler`, then closes it."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    try:
        yield f"{'https' if tls else 'http'}://{name}:{port}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def request_from(reader: asyncio.StreamReader) -> bytes:
    """One whole request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(length)


class Answers:
    """A handler: the n-th request of all gets the n-th answer, in these pieces.

    A connection lives on after its answer unless that is the last one.
    """

    def __init__(self, *answers: Sequence[bytes]) -> None:
        self._answers = list(answers)
        self.connections = 0
        self.requests: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self._answers:
            self.requests.append(await request_from(reader))
            for piece in self._answers.pop(0):
                writer.write(piece)
                await writer.drain()
                # Lets the reader see each piece by itself.
                await asyncio.sleep(0)


@asynccontextmanager
async def http(pool: Pool | None = None) -> AsyncIterator[HttpClient]:
    client = HttpClient(pool or Pool())
    try:
        yield client
    finally:
        await client.close()


async def sent(
    client: HttpClient, url: str, body: bytes = b"{}", timeouts: Timeouts = QUICK
) -> HttpConnection:
    async with asyncio.timeout(seconds(20)):
        return await client.send(request_target("POST", f"{url}/v1", {}), body, timeouts)


async def rest_of(response: HttpConnection) -> bytes:
    """The whole body; the response is released, also if reading fails."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds(20)):
            while read := await response.read():
                body += read
    finally:
        response.release(is_done=False)
    return bytes(body)


async def asked(client: HttpClient, url: str) -> tuple[int, bytes]:
    response = await sent(client, url)
    status = response.status
    return status, await rest_of(response)
