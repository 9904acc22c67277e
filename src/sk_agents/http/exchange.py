"""One request and its response on a connection: uvicorn's cycle, with less to do for each.

A stream sends often and little, and most requests are whole when they are looked at. For the few
routes that run all the time a request's scope leads here, past everything that stands between a
server and an application; on another server those routes do without.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from starlette.types import Scope
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

_EXTENSION = "sk_agents.exchange"
_KNOWN_HEADERS = 256
# Says nothing to a reader of server-sent events.
COMMENT = b": keepalive\n\n"


class Exchange(RequestResponseCycle):
    """Differs from uvicorn's in what it costs; it has no access log."""

    def __init__(
        self,
        scope: Scope,
        transport: asyncio.Transport,
        flow: FlowControl,
        logger: logging.Logger,
        default_headers: list[tuple[bytes, bytes]],
        *,
        expect_100_continue: bool,
        keep_alive: bool,
        on_response: Callable[[], None],
        on_closing: Callable[[], None],
    ) -> None:
        self.scope = scope  # type: ignore[assignment]  # as made by uvicorn
        self.transport = transport
        self.flow = flow
        self.logger = logger
        self.default_headers = default_headers
        self.message_event = asyncio.Event()
        self.on_response = on_response
        self._on_closing = on_closing
        self.disconnected = False
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expect_100_continue
        self.body = bytearray()
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self.chunked_encoding = None
        self.expected_content_length = 0
        self.is_event_stream = False
        # Of a response without a length to a client that knows no chunks (RFC 9112, 6.3).
        self._ends_by_closing = False
        # Written together with what follows it, if that comes at once.
        self._head = b""
        scope["extensions"] = {_EXTENSION: self}

    async def run_asgi(self, app: ASGI3Application) -> None:
        await super().run_asgi(app)
        if self.transport.is_closing():
            self._on_closing()

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
            self.write(COMMENT)

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
            self._begin(cast(dict[str, Any], message))
        elif self.response_complete:
            raise RuntimeError("the response has been sent already")
        else:
            self._go_on(cast(dict[str, Any], message))

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


def exchange_of(scope: Scope) -> Exchange | None:
    """The exchange that this request belongs to; None on a server that is not ours."""
    extensions = scope.get("extensions")
    return extensions.get(_EXTENSION) if extensions else None


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
