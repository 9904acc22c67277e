"""A server's connections, bounded: how many, how long a head may take, how large it may be, how
long a client may leave what is written to it.

uvicorn's own protocol keeps a connection that never sends a request, reads headers without end
and takes fields that follow a chunked body for headers. It waits for ever for a client that takes
nothing, and takes one that has said all for one that has left. Its limit on concurrency refuses
everybody alike when it is reached; here the connection that has been idle longest makes room. What
requests mean is not known here.
"""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sk_agents.http.exchange import Exchange
from sk_agents.http.raw_problem import raw_problem

# Files, the store's connections, the model's and the tools'.
OTHER_FILES = 256
LINGER_SECONDS = 1.0
# A client that has ended its side may be waiting or gone, and only a write tells: the first one
# makes the other machine say so, a later one finds out that it did.
PROBE_SECONDS = (0.05, 0.15, 1.0)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections: int = 10_000
    headers: int = 100
    # The request line and all headers together.
    head_bytes: int = 32 * 1024
    head_seconds: float = 10.0
    # Requests sent ahead of their turn, and the bytes of each one's body.
    pipelined: int = 8
    pipelined_bytes: int = 64 * 1024
    # Whatever is being written: a client that does not take it for so long is cut off.
    write_seconds: float = 30.0


def affordable_connections(wanted: int) -> int:
    """As many of them as this process may have files open, after asking for as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    return max(1, soft - OTHER_FILES)


class BoundedConnection(HttpToolsProtocol):
    """One client's connection. `bounded_by` makes the class that one server uses."""

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()
    # Those without a request in progress, the longest idle first.
    idle: ClassVar[OrderedDict[BoundedConnection, None]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        # Of a connection that waits for its next request; set once for many of them.
        self._rest: asyncio.TimerHandle | None = None
        self._rests_until = 0.0
        self._head_bytes = self._head_count = 0
        # What came in since there last was a whole head or a part of a body.
        self._useless_bytes = 0
        self._in_head = True
        self._is_too_large = False
        self._is_deaf = False
        # Ends a connection whose client takes nothing.
        self._patience: asyncio.TimerHandle | None = None
        # The one that is being answered; `cycle` is the one that was read last.
        self._answering: Exchange | None = None
        # Of a request whose head has been read once, and is given to a second parser.
        self._repeats_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections and not self._make_room():
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE)
            self._close()
            return
        self.idle[self] = None
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._forget_timer()
        if self._rest is not None:
            self._rest.cancel()
        if self._patience is not None:
            self._patience.cancel()
        if self._answering is not None:
            self._answering.leave()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Called by uvicorn when the server ends: what has not come whole is not waited for."""
        if self._is_idle() or self.pipeline or not self.cycle.more_body:
            super().shutdown()
        elif not self.cycle.response_started:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            cast(Exchange, self.cycle).leave()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._lose_patience()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._patience is not None and not self.transport.is_closing():
            self._patience.cancel()
            self._patience = None

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio's
        """The client has said all it wants to. What it has asked for, it may still want."""
        self._is_deaf = True
        if self._is_idle():
            return False
        if self.cycle.more_body:
            # The rest of it will never come.
            if not self.pipeline:
                return False
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else cast(Exchange, self._answering)
        self.cycle.keep_alive = False
        for seconds in PROBE_SECONDS:
            self.loop.call_later(seconds, self._probe)
        return True

    def _probe(self) -> None:
        if self._answering is not None:
            self._answering.probe()

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        # Another protocol has the connection now.
        self._is_deaf = True

    def _unsupported_upgrade_warning(self) -> None:
        """Offers of a protocol that is not spoken here, such as h2c, are not worth a log line."""

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._useless_bytes += len(data)
        self._parse(data)
        if self._is_deaf:
            return
        if self._useless_bytes > self.limits.head_bytes:
            self._is_too_large = True
            self.send_400_response("")
        elif self._timer is None and self._is_idle():
            self._await_head()

    def _parse(self, data: bytes) -> None:
        """As uvicorn's, which takes what follows an offer of another protocol for that protocol."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("")
        except httptools.HttpParserUpgrade as offer:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._go_on_without_upgrade(data[offer.args[0] :])

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """The request is answered in the protocol that it came in (RFC 9110, 7.8).

        A parser that has seen the offer reads no body. Another one is told the length of it.
        """
        about = (b"content-length", b"transfer-encoding")
        head = [b"POST / HTTP/1.1\r\n"]
        head += [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] in about]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._repeats_head = True
        self._parse(b"".join([*head, b"\r\n"]))
        if rest and not self._is_deaf:
            self._parse(rest)

    def on_message_begin(self) -> None:
        if self._repeats_head:
            return
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._head_count = 0

    def on_url(self, url: bytes) -> None:
        if self._repeats_head:
            return
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._repeats_head:
            return
        self._head_count += 1
        self._count_head(len(name) + len(value))
        # What follows a chunked body was not there when the request was checked.
        if self._in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._repeats_head:
            self._repeats_head = False
            return
        if not self.url.startswith(b"/"):
            self._check_target()
        self._in_head = False
        self._useless_bytes = 0
        self._forget_timer()
        self.idle.pop(self, None)
        self._complete_scope()
        if not (self.parser.should_upgrade() and self._should_upgrade()):
            self._begin_exchange()

    def _complete_scope(self) -> None:
        scope, target = self.scope, httptools.parse_url(self.url)
        scope["method"] = self.parser.get_method().decode("ascii")
        version = self.parser.get_http_version()
        if version != "1.1":
            scope["http_version"] = version
        path = target.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = target.path
        scope["query_string"] = target.query or b""

    def _begin_exchange(self) -> None:
        is_free = self._is_idle()
        self.cycle = Exchange(
            self.scope,  # type: ignore[arg-type]  # the same, under uvicorn's name
            self.transport,
            self.flow,
            self.logger,
            self.server_state.default_headers,
            expect_100_continue=self.expect_100_continue,
            keep_alive=self.scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
            on_closing=self._lose_patience,
        )
        if is_free:
            self._answer_next(self.cycle)
            return
        self.flow.pause_reading()
        self.pipeline.appendleft((self.cycle, self.app))
        if len(self.pipeline) > self.limits.pipelined:
            self._close()

    def _answer_next(self, exchange: Exchange) -> None:
        self._answering = exchange
        self._start_asgi_task(exchange, self.app)

    def on_body(self, body: bytes) -> None:
        self._useless_bytes = 0
        super().on_body(body)
        if self.pipeline and len(self.cycle.body) > self.limits.pipelined_bytes:
            self._close()

    def on_message_complete(self) -> None:
        self._useless_bytes = 0
        if self.parser.should_upgrade() and not self._should_upgrade():
            # Only for a parser that has seen an offer is this the end.
            return
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, which sets a timer after every response and stops it again."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._lose_patience()
            return
        self.flow.resume_reading()
        if self.pipeline:
            exchange, _ = self.pipeline.pop()
            self._answer_next(cast(Exchange, exchange))
            return
        self.idle[self] = None
        self._rests_until = self.loop.time() + self.timeout_keep_alive
        if self._rest is None:
            self._rest = self.loop.call_at(self._rests_until, self._end_rest)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what its parser does not accept."""
        cycle = self.cycle
        if self._is_idle():
            self._refuse()
        elif not cycle.more_body:
            # It is the next request that is bad: those before it get their answers.
            self._is_deaf = True
            cycle.keep_alive = False
        elif cycle.response_started or self.pipeline:
            self._close()
        else:
            self._refuse()
            cycle.disconnected = True
            cycle.message_event.set()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self) -> bool:
        if not self.idle:
            return False
        oldest, _ = self.idle.popitem(last=False)
        self.connections.discard(oldest)
        oldest._close()
        return True

    def _end_rest(self) -> None:
        """Unless a request is in progress, or its head, which has a timer of its own."""
        self._rest = None
        if not self._is_idle() or self._timer is not None or self._is_deaf:
            return
        if self.loop.time() < self._rests_until:
            self._rest = self.loop.call_at(self._rests_until, self._end_rest)
        else:
            self._close()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.limits.head_seconds, self._close)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.limits.head_bytes or self._head_count > self.limits.headers:
            self._is_too_large = True
            # The parser turns it into `send_400_response`.
            raise ValueError("head too large")

    def _check_target(self) -> None:
        """A whole URL as the target must name the host that the Host header names."""
        hosts = [value for name, value in self.headers if name == b"host"]
        authority = self.url.partition(b"://")[2].partition(b"/")[0]
        if self.url != b"*" and [authority] != hosts:
            raise ValueError("another host in the target")

    def _refuse(self, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        """Answer, then hear no more, and close a little later.

        Closing while bytes come in would make the kernel throw the answer away.
        """
        too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self._answer(too_large if self._is_too_large else status)
        self._is_deaf = True
        self.idle.pop(self, None)
        self._forget_timer()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_SECONDS, self._close)

    def _answer(self, status: HTTPStatus) -> None:
        self.transport.write(raw_problem(status))

    def _close(self) -> None:
        self._is_deaf = True
        self.idle.pop(self, None)
        self._forget_timer()
        self.transport.close()
        self._lose_patience()

    def _lose_patience(self) -> None:
        """From now on the client has its time to take what was written. Then it is cut off.

        A transport that is closed waits as long as its client likes.
        """
        if self._patience is None:
            self._patience = self.loop.call_later(self.limits.write_seconds, self.transport.abort)


def bounded_by(limits: ConnectionLimits) -> type[BoundedConnection]:
    """The protocol class for one server; what it counts, it counts for that one."""
    members = {"limits": limits, "idle": OrderedDict()}
    return cast(type[BoundedConnection], type("BoundedConnection", (BoundedConnection,), members))
