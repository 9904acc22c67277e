"""Server-sent events: frames out of JSON, and a response that sends them as they come.

A response of our own because a general one costs a task and a cancel scope per stream. Frames that
are there together leave in one write. What the frames say is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import cycle
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
)
# Says nothing to a reader of server-sent events.
KEEPALIVE = b": keepalive\n\n"
# Proxies cut connections that say nothing for a minute or half of one.
KEEPALIVE_SECONDS = 15.0
# A reader that takes nothing for this long is let go; it can resume. Our own server's connections
# hold it to that by themselves, whatever is being written; this is for other servers.
WRITE_SECONDS = 30.0
# A frame may be long. It leaves in parts, each when there is room for it, so that a stuck reader's
# frame waits here once and not once more in its connection's buffer.
PART = 64 * 1024
# A stream younger than this is not watched over: most are over by then.
YOUNG_SECONDS = 0.25


class Frames(Protocol):
    """Batches of frames that leave in one write; a generator is one."""

    def __aiter__(self) -> AsyncIterator[Sequence[bytes]]: ...

    async def aclose(self) -> None: ...


class LastFrames(list[bytes]):
    """A batch after which nothing comes: it leaves together with the end of the response."""


# The ASGI extension of connections that can be written to past the application.
LIVE_WRITES = "sk_agents.live_writes"


class WritableConnection(Protocol):
    @property
    def is_writable(self) -> bool:
        """Whether the response has begun, goes on, and its reader keeps up."""

    def write(self, body: bytes) -> None:
        """Send a part of the response, which must be writable, at once."""


class LiveWriter:
    """A way past the frames, for what may leave while no frame is being sent.

    Open from the beginning of a stream to its end, while its reader keeps up, on a server whose
    connections have `LIVE_WRITES`.
    """

    __slots__ = ("_connection", "_guard")

    def __init__(self) -> None:
        self._connection: WritableConnection | None = None
        self._guard: _Guard | None = None

    def begin(self, scope: Scope, guard: _Guard) -> None:
        self._connection = (scope.get("extensions") or {}).get(LIVE_WRITES)
        self._guard = guard

    @property
    def is_open(self) -> bool:
        return self._connection is not None and self._connection.is_writable

    def write(self, body: bytes) -> None:
        assert self._connection is not None and self._guard is not None, "it is not open"
        self._guard.note_write()
        self._connection.write(body)


def frame(event: str, data: bytes, *, id: str | None = None) -> bytes:
    """One frame; `data` is JSON on one line, `event` and `id` words of our own."""
    if id is None:
        return b"event: %b\ndata: %b\n\n" % (event.encode(), data)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id.encode(), event.encode(), data)


def last_frame(event: str, data: bytes, *, retry_ms: int) -> bytes:
    """A frame that also tells the reader when to come back."""
    return b"retry: %d\nevent: %b\ndata: %b\n\n" % (retry_ms, event.encode(), data)


class EventStream:
    """An ASGI response. Closes `frames` however it ends: complete, left by its reader, or too slow.

    Silence is broken by a comment, and by `idle_frame` in place of every second one.
    """

    def __init__(
        self,
        frames: Frames,
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        idle_frame: bytes = KEEPALIVE,
        keepalive: float = KEEPALIVE_SECONDS,
        write_timeout: float = WRITE_SECONDS,
        live: LiveWriter | None = None,
    ) -> None:
        self._frames = frames
        self._headers = [*HEADERS, *headers]
        self._live = live
        self._idle_frames = (KEEPALIVE, idle_frame)
        self._keepalive = keepalive
        self._write_timeout = write_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        guard = _Guard(receive, send, self._idle_frames, self._keepalive, self._write_timeout)
        if self._live is not None:
            self._live.begin(scope, guard)
        try:
            is_over = False
            async for batch in self._frames:
                is_over = isinstance(batch, LastFrames)
                body = b"".join(batch)
                # What is sent may wait long for its reader: the same in pieces need not, too.
                del batch
                await guard.send(body, more=not is_over)
                if is_over:
                    break
            if not is_over:
                await guard.send(b"", more=False)
        except asyncio.CancelledError:
            if not guard.has_ended_it:
                raise
            guard.stream.uncancel()
        finally:
            guard.close()
            await self._frames.aclose()


class _Guard:
    """Looks after an open stream: breaks its silence, and ends it when its reader is gone or stuck.

    Ending means cancelling the stream's task. A reader that is stuck gets no last frame: there is
    no room for one. Without its end the response is cut, which tells the reader to resume.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        idle_frames: tuple[bytes, bytes],
        keepalive: float,
        write_timeout: float,
    ) -> None:
        self._receive = receive
        self._send = send
        self._idle_frames = cycle(idle_frames)
        self._keepalive = keepalive
        self._write_timeout = write_timeout
        self._loop = asyncio.get_running_loop()
        self._is_writing = False
        self._last_write = self._loop.time()
        self._watch: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(YOUNG_SECONDS, self._begin)
        self.has_ended_it = False
        task = asyncio.current_task()
        assert task is not None
        self.stream: asyncio.Task[Any] = task

    async def send(self, body: bytes, *, more: bool = True) -> None:
        self._is_writing, self._last_write = True, self._loop.time()
        start = 0
        while len(body) - start > PART:
            part = body[start : start + PART]
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
            self._last_write = self._loop.time()
            start += PART
        rest = body[start:] if start else body
        await self._send({"type": "http.response.body", "body": rest, "more_body": more})
        self._is_writing = False

    def note_write(self) -> None:
        """The driver has written to the reader, who keeps up."""
        self._last_write = self._loop.time()

    def close(self) -> None:
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def _begin(self) -> None:
        self._watch = self._loop.create_task(self._look_after())

    async def _look_after(self) -> None:
        wait = min(self._keepalive, self._write_timeout)
        while not await self._is_gone(wait):
            silence = self._loop.time() - self._last_write
            if self._is_writing:
                if silence >= self._write_timeout:
                    break
                wait = min(self._keepalive, self._write_timeout - silence)
            else:
                if silence >= self._keepalive and not await self._has_taken_idle_frame():
                    break
                wait = self._keepalive
        self.has_ended_it = True
        self.stream.cancel()

    async def _has_taken_idle_frame(self) -> bool:
        """Break the silence. It has a deadline of its own: no one else looks while it waits."""
        frame = {"type": "http.response.body", "body": next(self._idle_frames), "more_body": True}
        try:
            async with asyncio.timeout(self._write_timeout):
                await self._send(frame)
        except TimeoutError:
            return False
        self.note_write()
        return True

    async def _is_gone(self, seconds: float) -> bool:
        """Whether the reader leaves before it is time to look again."""
        try:
            async with asyncio.timeout(seconds):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return False
        return True
