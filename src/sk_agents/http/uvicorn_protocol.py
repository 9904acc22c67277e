"""uvicorn's private parts, all of them that we use, behind one check.

Its own protocol keeps a connection that never sends a request, reads headers without end and takes
fields that follow a chunked body for headers. It waits without end for a client that takes nothing,
and takes one that has sent everything for one that has left. Its limit on concurrency refuses all
alike when it is reached; here the connection that has been idle longest makes room. And its cycle
has no way to write past the application: live text is handed over so, which takes a third off the
CPU of a turn that is paced at 10 ms a token.

The classes below override methods that change between versions. `unsupported` compares what is
installed with what they were written for; `connections.http_protocol` asks it. What requests mean
is not known here.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import OrderedDict
from functools import lru_cache, partial
from http import HTTPStatus
from secrets import token_hex
from typing import Any, ClassVar, cast
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn._types import ASGISendEvent, HTTPScope
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from sk_agents.exceptions import ShuttingDown
from sk_agents.http.connections import ConnectionLimits
from sk_agents.http.sse import KEEPALIVE, LIVE_WRITES

# The range that `pyproject.toml` asks for.
OLDEST, TOO_NEW = (0, 54), (0, 55)
LINGER_SECONDS = 1.0
# A client that has ended its side may be waiting or gone, and only a write tells: the first one
# makes the other machine say so, a later one finds out that it did.
PROBE_SECONDS = (0.05, 0.15, 1.0)
_KNOWN_HEADERS = 256
# As the front puts them on every response.
_COMMON_HEADERS = b"x-content-type-options: nosniff\r\ncache-control: no-store\r\n"

# What is overridden or called here: each method's parameters, and what `__init__` sets.
_EXPECTED: dict[type, dict[str, str]] = {
    HttpToolsProtocol: {
        "__init__": "self config server_state app_state _loop",
        "_should_upgrade": "self",
        "_unsupported_upgrade_warning": "self",
        "connection_lost": "self exc",
        "connection_made": "self transport",
        "data_received": "self data",
        "eof_received": "self",
        "handle_websocket_upgrade": "self",
        "on_body": "self body",
        "on_header": "self name value",
        "on_headers_complete": "self",
        "on_message_begin": "self",
        "on_message_complete": "self",
        "on_response_complete": "self",
        "on_url": "self url",
        "pause_writing": "self",
        "resume_writing": "self",
        "send_400_response": "self msg",
        "shutdown": "self",
    },
    RequestResponseCycle: {
        "__init__": "self scope transport flow logger access_logger access_log default_headers "
        "message_event expect_100_continue keep_alive on_response",
        "receive": "self",
        "run_asgi": "self app",
        "send": "self message",
    },
}
_ATTRIBUTES: dict[type, str] = {
    HttpToolsProtocol: "app app_state asgi_version client connections cycle expect_100_continue "
    "flow headers logger loop parser pipeline root_path scheme scope server server_state "
    "tasks timeout_keep_alive transport",
    RequestResponseCycle: "body chunked_encoding default_headers disconnected "
    "expected_content_length flow keep_alive logger message_event more_body on_response "
    "response_complete response_started scope transport waiting_for_100_continue",
}
# What uvicorn's exchange names beside those when it is made. Ours is made without it, so one
# attribute more would be missing at each request.
_NOT_NEEDED = {"access_log", "access_logger", "bytearray"}


def unsupported() -> str | None:
    """Why the installed uvicorn cannot be used with these classes; nothing if it can."""
    version = tuple(int(part) for part in uvicorn.__version__.split(".")[:2] if part.isdigit())
    if not OLDEST <= version < TOO_NEW:
        return "another version"
    for owner, methods in _EXPECTED.items():
        for name, parameters in methods.items():
            found = vars(owner).get(name)
            if found is None or " ".join(inspect.signature(found).parameters) != parameters:
                return f"{owner.__name__}.{name} is not what it was"
        missing = {*_ATTRIBUTES[owner].split()} - {*owner.__init__.__code__.co_names}  # type: ignore[misc]  # of a class
        if missing:
            return f"{owner.__name__} has no {min(missing)}"
    made_with = {*RequestResponseCycle.__init__.__code__.co_names} - _NOT_NEEDED
    if added := made_with - {*_ATTRIBUTES[RequestResponseCycle].split()}:
        return f"{RequestResponseCycle.__name__} has a new {min(added)}"
    return None


def bounded_by(limits: ConnectionLimits) -> type[BoundedConnection]:
    """The protocol class for one server; what it counts, it counts for that one."""
    members = {"limits": limits, "idle": OrderedDict()}
    return cast(type[BoundedConnection], type("BoundedConnection", (BoundedConnection,), members))


class Exchange(RequestResponseCycle):
    """One request and its response: as uvicorn's, with less work for each; no access log."""

    def __init__(self, connection: BoundedConnection, *, keep_alive: bool) -> None:
        # Not by uvicorn's own, whose dozen options took a hundredth of the CPU of a plain turn.
        self.scope = connection.scope
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.default_headers = connection.server_state.default_headers
        self.message_event = asyncio.Event()
        self.on_response = connection.on_response_complete
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = connection.expect_100_continue
        self.disconnected = False
        self.body = bytearray()
        self.more_body = True
        self.response_started = self.response_complete = False
        self.chunked_encoding: bool | None = None
        self.expected_content_length = 0
        self.is_event_stream = False
        # Of a response without a length to a client that knows no chunks (RFC 9112, 6.3).
        self._ends_by_closing = False
        # Written together with what follows it, if that comes at once: where small packets are
        # delayed, two writes cost a client 40 ms.
        self._head = b""
        cast("dict[str, Any]", self.scope)["extensions"] = {LIVE_WRITES: self}

    def leave(self) -> None:
        """The client is gone."""
        if not self.response_complete:
            self.disconnected = True
        self.message_event.set()

    def probe(self) -> None:
        """Write what says nothing, so that a client which has gone is found out.

        Before a response an interim one (RFC 9110, 15.2), in a stream of events a comment. All
        else is being written anyway.
        """
        if self.response_complete or self.disconnected or self.transport.is_closing():
            return
        if not self.response_started:
            if self.scope["http_version"] == "1.1":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif self.is_event_stream and self.is_writable:
            self.write(KEEPALIVE)

    @property
    def is_writable(self) -> bool:
        """Whether the response has begun, goes on, and its reader keeps up."""
        return (
            self.chunked_encoding is True
            and not self.response_complete
            and not self.disconnected
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def write(self, body: bytes) -> None:
        """A part of the response, which must be writable, at once."""
        head, self._head = self._head, b""
        self.transport.write(b"%b%x\r\n%b\r\n" % (head, len(body), body))

    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._begin(cast("dict[str, Any]", message))
        elif self.response_complete:
            raise RuntimeError("the response has been sent already")
        else:
            self._go_on(cast("dict[str, Any]", message))

    def _begin(self, message: dict[str, Any]) -> None:
        if message["type"] != "http.response.start":
            raise RuntimeError(f"a response cannot begin with {message['type']}")
        self.response_started = True
        self.waiting_for_100_continue = False
        status, headers = message["status"], message.get("headers", ())
        lines = [STATUS_LINE[status]]
        says_close = False
        for name, value in (*self.default_headers, *headers):
            line, role = _header(name, value)
            if role == b"keep-alive" and not self.keep_alive:
                continue
            lines.append(line)
            if role == b"content-length":
                self.expected_content_length = int(value)
                self.chunked_encoding = False
            elif role == b"close":
                self.keep_alive, says_close = False, True
            elif role == b"events":
                self.is_event_stream = True
        if not self.keep_alive and not says_close:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None and status not in (204, 304):
            if self.scope["method"] != "HEAD":
                self._ends_by_closing = self.scope["http_version"] == "1.0"
                self.chunked_encoding = not self._ends_by_closing
            if self.chunked_encoding:
                lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        if self.chunked_encoding or self._ends_by_closing:
            # A stream may have nothing to say for a while; what has a length follows at once.
            asyncio.get_running_loop().call_soon(self._write_head)

    def _write_head(self) -> None:
        if self._head and not self.transport.is_closing():
            head, self._head = self._head, b""
            self.transport.write(head)

    def _go_on(self, message: dict[str, Any]) -> None:
        if message["type"] != "http.response.body":
            raise RuntimeError(f"a response cannot go on with {message['type']}")
        body: bytes = message.get("body", b"")
        is_last = not message.get("more_body", False)
        head, self._head = self._head, b""
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            body = b""
        elif self.chunked_encoding:
            end = b"0\r\n\r\n" if is_last else b""
            body = b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
        elif not self._ends_by_closing:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("the response is longer than it said")
        self.transport.write(head + body if head else body)
        if is_last:
            self._finish()

    def _finish(self) -> None:
        if self.expected_content_length != 0:
            raise RuntimeError("the response is shorter than it said")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


@lru_cache(maxsize=_KNOWN_HEADERS)
def _header(name: bytes, value: bytes) -> tuple[bytes, bytes | None]:
    """A header as it is written, and what it means to a connection. Most are sent again and again.

    Raises:
        RuntimeError: it cannot be written.
    """
    if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
        raise RuntimeError("a header that cannot be sent")
    name = name.lower()
    role = None
    if name == b"content-length":
        role = name
    elif name == b"content-type" and value.startswith(b"text/event-stream"):
        role = b"events"
    elif name == b"connection":
        options = [part.strip() for part in value.lower().split(b",")]
        role = b"close" if b"close" in options else b"keep-alive"
    return b"%b: %b\r\n" % (name, value), role


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
        # What came in since there last was a whole head or a part of a body.
        self._useless_bytes = 0
        self._in_head = True
        self._is_too_large = False
        self._ignores_input = False
        # Ends a connection whose client takes nothing.
        self._write_timer: asyncio.TimerHandle | None = None
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
        if self._write_timer is not None:
            self._write_timer.cancel()
        if self._answering is not None:
            self._answering.leave()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Called by uvicorn when the server ends: what has not come whole is not waited for."""
        if self._is_idle() or self.pipeline or not self.cycle.more_body:
            super().shutdown()
        elif not self.cycle.response_started:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, ShuttingDown.code)
            cast(Exchange, self.cycle).leave()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None and not self.transport.is_closing():
            self._write_timer.cancel()
            self._write_timer = None

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio's
        """The client has said all it wants to. What it has asked for, it may still want."""
        self._ignores_input = True
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
        self._ignores_input = True

    def _unsupported_upgrade_warning(self) -> None:
        """Offers of a protocol that is not spoken here, such as h2c, are not worth a log line."""

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        self._useless_bytes += len(data)
        self._parse(data)
        if self._ignores_input:
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

        A parser that has seen the offer reads no body. Another one is given its length.
        """
        about = (b"content-length", b"transfer-encoding")
        head = [b"POST / HTTP/1.1\r\n"]
        head += [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] in about]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._repeats_head = True
        self._parse(b"".join([*head, b"\r\n"]))
        if rest and not self._ignores_input:
            self._parse(rest)

    def on_message_begin(self) -> None:
        """As uvicorn's, which begins the scope before it is known what is asked for."""
        if self._repeats_head:
            return
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        if not self._repeats_head:
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # What follows a chunked body was not there when the request was checked.
        if self._in_head and not self._repeats_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._repeats_head:
            self._repeats_head = False
            return
        self._check_head()
        if not self.url.startswith(b"/"):
            self._check_target()
        self._in_head = False
        self._useless_bytes = 0
        self._forget_timer()
        self.idle.pop(self, None)
        self.scope = self._new_scope()
        if not (self.parser.should_upgrade() and self._should_upgrade()):
            self._begin_exchange()

    def _new_scope(self) -> HTTPScope:
        target = httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": self.parser.get_http_version(),
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "method": self.parser.get_method().decode("ascii"),
            "root_path": self.root_path,
            "path": unquote(path) if "%" in path else path,
            "raw_path": target.path,
            "query_string": target.query or b"",
            "headers": self.headers,
            "state": self.app_state.copy(),
        }

    def _begin_exchange(self) -> None:
        is_free = self._is_idle()
        keep_alive = self.scope["http_version"] != "1.0" and self.parser.should_keep_alive()
        self.cycle = Exchange(self, keep_alive=keep_alive)
        if is_free:
            self._answer_next(self.cycle)
            return
        self.flow.pause_reading()
        self.pipeline.appendleft((self.cycle, self.app))
        if len(self.pipeline) > self.limits.pipelined:
            self._close()

    def _answer_next(self, exchange: Exchange) -> None:
        self._answering = exchange
        task = self.loop.create_task(exchange.run_asgi(self.app))
        self.tasks.add(task)
        task.add_done_callback(partial(self._end_exchange, exchange))

    def _end_exchange(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        # The scope refers to the exchange: without this both, and all that was found out about the
        # request, would live until the garbage collector comes.
        cast("dict[str, Any]", exchange.scope)["extensions"].clear()
        if self.transport.is_closing():
            self._await_reader()

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
            self._await_reader()
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
            self._ignores_input = True
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
        if not self._is_idle() or self._timer is not None or self._ignores_input:
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

    def _check_head(self) -> None:
        """One that does not end is cut off by the number of its bytes, see `data_received`."""
        size = len(self.url)
        for name, value in self.headers:
            size += len(name) + len(value)
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
        if size > self.limits.head_bytes or len(self.headers) > self.limits.headers:
            self._is_too_large = True
            # The parser turns it into `send_400_response`.
            raise ValueError("head too large")

    def _check_target(self) -> None:
        """A whole URL as the target must name the host that the Host header names."""
        hosts = [value for name, value in self.headers if name == b"host"]
        authority = self.url.partition(b"://")[2].partition(b"/")[0]
        if self.url != b"*" and [authority] != hosts:
            raise ValueError("another host in the target")

    def _refuse(self, status: HTTPStatus = HTTPStatus.BAD_REQUEST, code: str | None = None) -> None:
        """Answer, then hear no more, and close a little later.

        Closing while bytes come in would make the kernel throw the answer away.
        """
        too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self._answer(too_large if self._is_too_large else status, code)
        self._ignores_input = True
        self.idle.pop(self, None)
        self._forget_timer()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_SECONDS, self._close)

    def _answer(self, status: HTTPStatus, code: str | None = None) -> None:
        self.transport.write(_raw_problem(status, code))

    def _close(self) -> None:
        self._ignores_input = True
        self.idle.pop(self, None)
        self._forget_timer()
        self.transport.close()
        self._await_reader()

    def _await_reader(self) -> None:
        """From now on the client has its time to take what was written. Then it is cut off.

        A transport that is closed waits as long as its client likes.
        """
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(
                self.limits.write_seconds, self.transport.abort
            )


def _raw_problem(status: HTTPStatus, code: str | None = None) -> bytes:
    """The answer to what is no request: a whole response, after which the connection is closed."""
    body = json.dumps(
        {
            "type": "about:blank",
            "title": status.phrase,
            "status": status,
            "detail": "The request was not read.",
            "code": code or status.phrase.lower().replace(" ", "_"),
            "correlation_id": token_hex(16),
        }
    ).encode()
    later = b"retry-after: 1\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else b""
    head = (
        b"%bcontent-type: application/problem+json\r\ncontent-length: %d\r\n%b%b"
        b"connection: close\r\n\r\n" % (STATUS_LINE[status], len(body), _COMMON_HEADERS, later)
    )
    return head + body
