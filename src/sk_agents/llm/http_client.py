"""HTTP/1.1 for model clients: addresses, connections, and the pool they are kept in."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import aiohappyeyeballs

from sk_agents import __version__
from sk_agents.exceptions import ConfigurationError, ModelUnavailable
from sk_agents.llm.http_connection import HttpConnection
from sk_agents.llm.timeouts import Timeouts

# How long the next address is not tried while one is still being connected to.
NEXT_ADDRESS_SECONDS = 0.25
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_PATH_CHARACTERS = "/%:@!$&'()*+,;=~"


@dataclass(frozen=True, slots=True)
class Pool:
    """At most so many requests at once; an unused connection is kept for `keepalive` seconds."""

    connections: int = 1024
    keepalive: float = 60.0


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes and all of its head that is the same each time."""

    origin: Origin
    head: bytes = field(repr=False)


def target(method: str, url: str, headers: Mapping[str, str]) -> Target:
    """What `HttpClient.send` needs to know of an address.

    Raises:
        ConfigurationError: a header holds what no header may.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    name = f"[{host}]" if ":" in host else host
    lines = [f"{method} {quote(parts.path or '/', _PATH_CHARACTERS)} HTTP/1.1"]
    all_headers = {
        "Host": name if parts.port is None else f"{name}:{port}",
        "User-Agent": f"teal-agents/{__version__}",
        # A stream that waits to be worth compressing is no stream.
        "Accept-Encoding": "identity",
        **headers,
    }
    for header, value in all_headers.items():
        if not (_HEADER_NAME.fullmatch(header) and _HEADER_VALUE.fullmatch(value)):
            raise ConfigurationError(f"the header {header} holds characters no header may hold")
        lines.append(f"{header}: {value}")
    return Target(Origin(parts.scheme, host, port), "\r\n".join(lines).encode())


class HttpClient:
    """Bound to one event loop. A slot is held by every connection that is not resting."""

    def __init__(self, pool: Pool, trace: Callable[[], str | None] | None = None) -> None:
        self._pool = pool
        self._trace = trace
        self._slots = asyncio.Semaphore(pool.connections)
        self._open: set[HttpConnection] = set()
        self._resting: dict[Origin, list[HttpConnection]] = {}
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False
        self._all_lost = asyncio.Event()

    @property
    def resting(self) -> int:
        """How many connections wait to be used again."""
        return sum(map(len, self._resting.values()))

    async def close(self) -> None:
        """Cut all connections, also those in use."""
        self._is_closed = True
        for connection in self._open:
            connection.abort()
        if self._open:
            await self._all_lost.wait()

    async def send(self, to: Target, body: bytes, timeouts: Timeouts) -> HttpConnection:
        """The response, whose head is there. The caller must `release` it.

        Raises:
            OSError: no connection, or it failed; `TimeoutError` if it was too slow.
            ModelProtocolError: the other end does not speak HTTP.
            ModelUnavailable: the client is closed.
        """
        head = b"%s\r\nContent-Length: %d\r\n\r\n" % (to.head, len(body))
        if self._trace is not None and (trace := self._trace()) is not None:
            head = b"%s\r\ntraceparent: %s\r\n\r\n" % (head[:-4], trace.encode())
        await self._take_slot(timeouts)
        resting = self._resting.get(to.origin)
        if resting:
            connection = resting.pop()
            try:
                return await connection.send(head, body, timeouts)
            except ConnectionError:
                if connection.has_answered:
                    raise
            # The other end had closed it while it was unused. A fresh one tells more.
            await self._take_slot(timeouts)
        connection = await self._connect(to.origin, timeouts)
        return await connection.send(head, body, timeouts)

    async def _take_slot(self, timeouts: Timeouts) -> None:
        if self._is_closed:
            raise ModelUnavailable("the model clients are closed", is_final=True)
        if not self._slots.locked():
            await self._slots.acquire()
            return
        async with asyncio.timeout(timeouts.total):
            await self._slots.acquire()

    async def _connect(self, origin: Origin, timeouts: Timeouts) -> HttpConnection:
        try:
            async with asyncio.timeout(timeouts.connect):
                connection = await self._connected(origin)
        except BaseException:
            self._slots.release()
            raise
        if connection.is_open:
            self._open.add(connection)
        if self._is_closed:
            connection.abort()
        return connection

    async def _connected(self, origin: Origin) -> HttpConnection:
        loop = asyncio.get_running_loop()
        tls = await self._context() if origin.scheme == "https" else None
        try:
            addresses = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise OSError("no host can have this name") from None
        opened = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1
        )
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, connection = await loop.create_connection(
                lambda: HttpConnection(
                    lambda connection: self._rest(origin, connection),
                    lambda connection: self._lost(origin, connection),
                    self._pool.keepalive,
                ),
                sock=opened,
                ssl=tls,
                server_hostname=origin.host if tls else None,
            )
        except BaseException:
            opened.close()
            raise
        return connection

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            # It reads the system's certificates.
            self._tls = await asyncio.to_thread(ssl.create_default_context)
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    def _rest(self, origin: Origin, connection: HttpConnection) -> None:
        self._slots.release()
        self._resting.setdefault(origin, []).append(connection)

    def _lost(self, origin: Origin, connection: HttpConnection) -> None:
        resting = self._resting.get(origin, [])
        if connection in resting:
            resting.remove(connection)
        else:
            self._slots.release()
        self._open.discard(connection)
        if not self._open:
            self._all_lost.set()
