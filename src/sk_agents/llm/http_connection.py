"""One HTTP/1.1 connection: a request out, its response read as it comes.

A network read wakes its reader once, whatever it holds, and a connection has one timer, moved only
when it fires or would fire too late: a streamed reply of a fast model is many small reads.

Knows no addresses and no redirects, and decodes no compression: it is asked for none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self, cast

import httptools

from sk_agents.exceptions import ModelProtocolError
from sk_agents.llm.timeouts import Timeouts

# This many bytes in a row without any body: a head, a trailer or a chunk's extension out of bounds.
MAX_HEAD_BYTES = 256 * 1024
# With so much unread, the other end has to wait.
MAX_UNREAD_BYTES = 1024 * 1024
# How long an ended reply may take to give its connection back.
PARTING_SECONDS = 0.2

Report = Callable[["HttpConnection"], None]


class HttpConnection(asyncio.Protocol):
    """`idle` is told when it can be used again, `lost` when it is gone.

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
        self._barren = 0
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
                await self._wait()
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
            await self._wait()
        read = b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return read

    def release(self, *, is_done: bool) -> None:
        """The reader has read enough. If `is_done`, all but the farewell was there."""
        if not self.in_use:
            return
        self.in_use = False
        self._pieces.clear()
        if self.is_complete:
            self._stay_or_close()
        elif is_done and self._error is None and not self._is_paused:
            # Its end is near, and nobody need wait for it.
            self._is_left = True
            self._expire_at(self._loop.time() + PARTING_SECONDS)
        else:
            self.abort()

    def abort(self) -> None:
        self.is_open = False
        self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._expire_at(min(self._loop.time() + self._idle_seconds, self._end_at))
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

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
            # Nobody asked anything.
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
            self._weigh(len(data))
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

    def _weigh(self, size: int) -> None:
        self._unread += size
        self._barren = 0 if self._pieces or self.is_complete else self._barren + size
        if self._barren > MAX_HEAD_BYTES:
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
        self._timer = self._loop.call_at(self._timer_at, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if not self.is_open:
            return
        if self._loop.time() < self._deadline:
            self._set_timer()
        elif not self.in_use:
            self.abort()
        elif self._waiter is not None:
            self._fail(TimeoutError("the reply took too long"))
