"""HTTP/1.1 for model clients: connections, and the pool they are kept in.

A network read wakes its reader once, whatever it holds, and a connection has one timer, moved only
when it fires or would fire too late: a streamed reply of a fast model is many small reads. There
are no redirects and no compression. A proxy gets the whole URL of plain addresses, and is asked for
a tunnel to https ones.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self, cast
from urllib.parse import quote, urlsplit

import aiohappyeyeballs
import httptools

from sk_agents import __version__
from sk_agents.exceptions import ConfigurationError, ModelProtocolError, ModelUnavailable
from sk_agents.outbound.certificates import ClientCertificate
from sk_agents.outbound.network import Network
from sk_agents.outbound.problems import ProxyBroken, ProxyRefused
from sk_agents.outbound.proxies import Proxy

# This many bytes in a row without any body: a head, a trailer or a chunk's extension out of bounds.
MAX_HEAD_BYTES = 256 * 1024
# With so much unread, the other end has to wait.
MAX_UNREAD_BYTES = 1024 * 1024
# How long an ended reply may take to give its connection back.
PARTING_SECONDS = 0.2

Report = Callable[["HttpConnection"], None]

# How long the next address is not tried while one is still being connected to.
NEXT_ADDRESS_SECONDS = 0.25
# Of a proxy's answer to `CONNECT`, which has no body when it agrees.
MAX_TUNNEL_HEAD = 16 * 1024
_TUNNEL_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_PATH_CHARACTERS = "/%:@!$&'()*+,;=~"
_QUERY_CHARACTERS = f"{_PATH_CHARACTERS}?"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds: to connect, between two reads (the wait for the first included), in all."""

    connect: float = 10.0
    idle: float = 300.0
    total: float = 1800.0


class HttpConnection(asyncio.Protocol):
    """`idle` is called when it can be used again, `lost` when it is gone.

    Between `send` and `release` it is the response: `status`, `headers` in small letters, `read`.
    """

    def __init__(self, idle: Report, lost: Report, keepalive: float) -> None:
        self._idle = idle
        self._lost = lost
        self._keepalive = keepalive
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._pieces: list[bytes] = []
        # Straight into the list: a read may hold many pieces.
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        self._is_paused = False
        self.is_open = False
        self.in_use = False
        self._is_left = False
        self._begin(Timeouts())

    def _begin(self, timeouts: Timeouts) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.is_complete = False
        self.has_answered = False
        self._can_stay = False
        self._is_sealed = False
        self._error: Exception | None = None
        self._unread = 0
        self._bytes_without_body = 0
        self._idle_seconds = timeouts.idle
        self._end_at = self._loop.time() + timeouts.total

    async def send(self, head: bytes, body: bytes, timeouts: Timeouts) -> Self:
        """Send a request and wait for the head of its response. If that fails, all is released.

        Raises:
            OSError: the connection failed, `TimeoutError` if it was too slow.
            ModelProtocolError: what came is not HTTP.
        """
        self._begin(timeouts)
        if not self.is_open:
            raise ConnectionResetError("the connection was closed")
        self.in_use = True
        self._transport.writelines((head, body))
        try:
            while not self.status:
                await self._next_read()
        except BaseException:
            self.release(is_done=False)
            raise
        return self

    async def read(self) -> bytes:
        """What has come since the last call; empty at the end of the response.

        Raises:
            OSError, ModelProtocolError: as `send`.
        """
        while not self._pieces:
            if self.is_complete:
                return b""
            await self._next_read()
        read = b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return read

    def release(self, *, is_done: bool) -> None:
        """The reader has read enough. If `is_done`, all but the end mark was there."""
        if not self.in_use:
            return
        self.in_use = False
        self._pieces.clear()
        if self.is_complete:
            self._stay_or_close()
        elif is_done and self._error is None and not self._is_paused:
            # Its end is near, and no caller need wait for it.
            self._is_left = True
            self._expire_at(self._loop.time() + PARTING_SECONDS)
        else:
            self.abort()

    def abort(self) -> None:
        self.is_open = False
        self._transport.abort()

    def _next_read(self) -> asyncio.Future[None]:
        """Ends when the other end has sent more."""
        if self._error is not None:
            raise self._error
        self._expire_at(min(self._loop.time() + self._idle_seconds, self._end_at))
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            if self._error is None:
                self._waiter.set_result(None)
            else:
                self._waiter.set_exception(self._error)

    def _stay_or_close(self) -> None:
        self._is_left = False
        if not (self._can_stay and self.is_open):
            self.abort()
            return
        self._expire_at(self._loop.time() + self._keepalive)
        self._idle(self)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self.abort()
        self._wake()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if not (self.in_use or self._is_left):
            # There was no request.
            self.abort()
            return
        self.has_answered = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._can_stay = False
            if not self.is_complete:
                self._fail(ModelProtocolError("the other end does not speak HTTP"))
                return
        if self._is_left:
            self._pieces.clear()
            if self.is_complete:
                self._stay_or_close()
        else:
            self._count(len(data))
            self._wake()

    def eof_received(self) -> None:
        self.is_open = False
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._ended(exc)
        if self._timer is not None:
            self._timer.cancel()
        self._lost(self)

    def _ended(self, error: Exception | None) -> None:
        self._can_stay = False
        if self.is_complete or not self.in_use:
            return
        if error is None and self.status and not self._is_sealed:
            # The end of the connection is how such a response ends.
            self.is_complete = True
            self._wake()
        else:
            self._fail(error or ConnectionResetError("the connection was closed"))

    def _count(self, size: int) -> None:
        self._unread += size
        self._bytes_without_body += size
        if self._pieces or self.is_complete:
            self._bytes_without_body = 0
        if self._bytes_without_body > MAX_HEAD_BYTES:
            self._fail(ModelProtocolError("the reply's head does not come to an end"))
        elif self._unread > MAX_UNREAD_BYTES and not self._is_paused and not self.is_complete:
            self._is_paused = True
            self._transport.pause_reading()

    # What the parser calls. An error raised here makes it stop.

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise ModelProtocolError("more than one response")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            # Not the response yet.
            self.headers.clear()
            return
        self.status = status
        coding = self.headers.get(b"transfer-encoding", b"")
        self._is_sealed = b"content-length" in self.headers or b"chunked" in coding.lower()

    def on_message_complete(self) -> None:
        if self.status:
            self.is_complete = True
            self._can_stay = self._parser.should_keep_alive()

    # The timer.

    def _expire_at(self, moment: float) -> None:
        self._deadline = moment
        if self._timer is None or moment < self._timer_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Never further off than an unused connection lives, so that resting seldom moves it.
        self._timer_at = min(self._deadline, self._loop.time() + self._keepalive)
        self._timer = self._loop.call_at(self._timer_at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if not self.is_open:
            return
        if self._loop.time() < self._deadline:
            self._set_timer()
        elif not self.in_use:
            self.abort()
        elif self._waiter is not None and not self._waiter.done():
            self._fail(TimeoutError("the reply took too long"))


@dataclass(frozen=True, slots=True)
class Pool:
    """At most so many requests at once; an unused connection is kept for `keepalive` seconds."""

    connections: int = 1024
    keepalive: float = 60.0


class Origin(NamedTuple):
    """Connections to the same origin are shared."""

    scheme: str
    host: str
    port: int
    proxy: Proxy | None = None
    certificate: ClientCertificate | None = None

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """Where a request goes and all of its head that is the same each time."""

    origin: Origin
    head: bytes = field(repr=False)


def request_target(
    method: str,
    url: str,
    headers: Mapping[str, str],
    *,
    proxy: Proxy | None = None,
    certificate: ClientCertificate | None = None,
) -> RequestTarget:
    """What `HttpClient.send` needs to know of an address.

    Raises:
        ConfigurationError: a header holds what no header may.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    origin = Origin(parts.scheme, host, port, proxy, certificate)
    name = f"[{host}]" if ":" in host else host
    path = quote(parts.path or "/", _PATH_CHARACTERS)
    if parts.query:
        path += f"?{quote(parts.query, _QUERY_CHARACTERS)}"
    all_headers = {
        "Host": name if parts.port is None else f"{name}:{port}",
        "User-Agent": f"teal-agents/{__version__}",
        # A stream that waits to be worth compressing is no stream.
        "Accept-Encoding": "identity",
        **headers,
    }
    if proxy is not None and parts.scheme == "http":
        path = f"http://{origin.authority}{path}"
        if proxy.authorization is not None:
            all_headers["Proxy-Authorization"] = proxy.authorization
    lines = [f"{method} {path} HTTP/1.1"]
    for header, value in all_headers.items():
        if not (_HEADER_NAME.fullmatch(header) and _HEADER_VALUE.fullmatch(value)):
            raise ConfigurationError(f"the header {header} holds characters no header may hold")
        lines.append(f"{header}: {value}")
    return RequestTarget(origin, "\r\n".join(lines).encode())


class HttpClient:
    """Bound to one event loop. A slot is held by every connection that is not resting."""

    def __init__(
        self,
        pool: Pool,
        trace: Callable[[], str | None] | None = None,
        network: Network | None = None,
    ) -> None:
        self._pool = pool
        self._trace = trace
        self._network = network or Network()
        self._slots = asyncio.Semaphore(pool.connections)
        self._open: set[HttpConnection] = set()
        self._resting: dict[Origin, list[HttpConnection]] = {}
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

    async def send(self, to: RequestTarget, body: bytes, timeouts: Timeouts) -> HttpConnection:
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
            # The other end had closed it while it was unused. A new one shows more.
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
        tls = await self._tls(origin) if origin.scheme == "https" else None
        place = origin.proxy or origin
        opened = await _opened(place.host, place.port)
        try:
            if origin.proxy is None:
                return await self._over(opened, origin, tls, origin.host)
            proxy = origin.proxy
            outer = await self._tls(origin) if proxy.scheme == "https" else None
            if tls is None:
                return await self._over(opened, origin, outer, proxy.host)
            return await self._tunnelled(opened, origin, outer, tls)
        except BaseException:
            opened.close()
            raise

    async def _over(
        self, opened: socket.socket, origin: Origin, tls: ssl.SSLContext | None, name: str
    ) -> HttpConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: self._connection(origin),
            sock=opened,
            ssl=tls,
            server_hostname=name if tls else None,
        )
        return connection

    async def _tunnelled(
        self,
        opened: socket.socket,
        origin: Origin,
        outer: ssl.SSLContext | None,
        tls: ssl.SSLContext,
    ) -> HttpConnection:
        assert origin.proxy is not None
        loop = asyncio.get_running_loop()
        transport, tunnel = await loop.create_connection(
            lambda: _Tunnel(origin),
            sock=opened,
            ssl=outer,
            server_hostname=origin.proxy.host if outer else None,
        )
        try:
            await tunnel.is_open
            inner = await loop.start_tls(transport, tunnel, tls, server_hostname=origin.host)
        except BaseException:
            transport.abort()
            raise
        assert inner is not None
        connection = self._connection(origin)
        inner.set_protocol(connection)
        connection.connection_made(inner)
        return connection

    def _connection(self, origin: Origin) -> HttpConnection:
        return HttpConnection(
            partial(self._rest, origin),
            partial(self._lost, origin),
            self._pool.keepalive,
        )

    async def _tls(self, origin: Origin) -> ssl.SSLContext:
        return await self._network.loaded_context(origin.certificate)

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


async def _opened(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError("no host can have this name") from None
    opened = await aiohappyeyeballs.start_connection(
        addresses, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1
    )
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a connection to an origin; `is_open` has no result but errors."""

    def __init__(self, origin: Origin) -> None:
        assert origin.proxy is not None
        self._origin = origin
        self._proxy = origin.proxy
        self._head = bytearray()
        self.is_open: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        place = self._origin.authority
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if self._proxy.authorization is not None:
            lines.append(f"Proxy-Authorization: {self._proxy.authorization}")
        cast(asyncio.Transport, transport).write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        if self.is_open.done():
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        status = _TUNNEL_STATUS.match(self._head)
        if end < 0 and len(self._head) <= MAX_TUNNEL_HEAD:
            return
        if status is None or end < 0:
            self._fail(ProxyBroken(f"{self._proxy.url} does not speak as a proxy"))
        elif not 200 <= int(status[1]) < 300:
            self._fail(ProxyRefused(self._proxy.url, int(status[1])))
        elif end + 4 < len(self._head):
            # In a tunnel it is the client that speaks first.
            self._fail(ProxyBroken(f"{self._proxy.url} does not speak as a proxy"))
        else:
            self.is_open.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ProxyBroken(f"{self._proxy.url} closed the connection"))

    def _fail(self, error: Exception) -> None:
        if not self.is_open.done():
            self.is_open.set_exception(error)
