"""The network between clients and instances: requests to an ASGI application in virtual time.

`SimulatedLink` is the Python client's own link over it. Everything that arrives at a client on a
stream is kept, as it came over the wire, for the checker.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import orjson

from sk_agents.client.connection import (
    ByteStream,
    RetryTiming,
    ServerConnection,
    ServerRequest,
    refusal,
)
from sk_agents.client.errors import ServerUnreachable
from sk_agents.client.sse_parser import Frame, SseParser
from tests.simulation.virtual_loop import Process
from tests.simulation.virtual_threads import START, running_loop

LATENCY = 0.002
SILENCE = 45.0
# What is sent later arrives later: timers of one moment have no order.
TICK = 1e-9
LOST = object()


@dataclass(slots=True)
class Connection:
    """One stream as its client saw it."""

    at: float
    instance: int
    user_id: str
    request: ServerRequest
    status: int = 0
    frames: list[Frame] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Server:
    """Where an instance can be reached; `app` is `None` while it cannot."""

    index: int
    process: Process | None = None
    app: Callable[..., Any] | None = None
    answers: set[SimulatedResponse] = field(default_factory=set)

    def cut(self) -> None:
        """Every connection breaks; both sides notice, if they live."""
        for answer in list(self.answers):
            answer.cut()


class SimulatedResponse:
    """As much of aiohttp's response as the client uses."""

    def __init__(self, server: Server, connection: Connection) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.content = self
        self.url = connection.request.path
        self._server = server
        self._connection = connection
        self._loop = running_loop()
        self._context = contextvars.copy_context()
        self._arrived: deque[bytes | object] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._due = 0.0
        self._left = asyncio.Event()
        self._is_told_all = False
        self._has_ended = False
        self._parser: SseParser | None = None
        self.error: BaseException | None = None
        server.answers.add(self)

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]

    def begin(self, app: Callable[..., Any], process: Process, scope: Any, body: bytes) -> None:
        """Let the server serve it, as a task of its own process."""
        self._body: bytes | None = body
        task = self._loop.create_task(
            app(scope, self._receive, self._send), context=process.context.copy()
        )
        task.add_done_callback(self._served, context=self._context)
        self._task = task

    async def opened(self) -> None:
        """Until the head of the answer is there."""
        while not self.status:
            await self._next(peek=True)

    async def readany(self) -> bytes:
        item = await self._next()
        if item is None:
            return b""
        if self._parser is not None:
            for frame in self._parser.feed(item):
                self._connection.frames.append(frame)
                self._connection.times.append(self._loop.time())
        return item

    async def read(self) -> bytes:
        parts = []
        while part := await self.readany():
            parts.append(part)
        return b"".join(parts)

    async def readexactly(self, size: int) -> bytes:
        raise asyncio.IncompleteReadError(await self.read(), size)

    def close(self) -> None:
        self._server.answers.discard(self)
        self._left.set()

    def cut(self) -> None:
        self._server.answers.discard(self)
        self._left.set()
        self._deliver(LOST)

    async def __aenter__(self) -> SimulatedResponse:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    async def _next(self, *, peek: bool = False) -> bytes | None:
        while not self._arrived:
            if self._has_ended:
                return None
            self._wake = self._loop.create_future()
            try:
                async with asyncio.timeout(SILENCE):
                    await self._wake
            except TimeoutError:
                raise ServerUnreachable("The server is silent.") from None
            if peek and self.status:
                return None
        if self._arrived[0] is LOST:
            raise ServerUnreachable("The connection was cut.")
        if peek:
            return None
        item = self._arrived.popleft()
        assert isinstance(item, bytes)
        return item

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if self._left.is_set():
            return
        if message["type"] == "http.response.start":
            self._deliver(message)
            return
        if body := message.get("body", b""):
            self._deliver(body)
        if not message.get("more_body"):
            self._is_told_all = True
            self._deliver(None)

    def _deliver(self, item: object) -> None:
        """In order, each after its own delay."""
        now = self._loop.time()
        self._due = max(self._due + TICK, now + self._loop.random.random() * LATENCY)
        self._loop.call_at(self._due, self._take, item, context=self._context)

    def _take(self, item: Any) -> None:
        if isinstance(item, dict):
            self.status = item["status"]
            self._connection.status = self.status
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in item["headers"]
            }
            if self.content_type == "text/event-stream":
                self._parser = SseParser()
        elif item is None:
            self._has_ended = True
        else:
            self._arrived.append(item)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._server.answers.discard(self)
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()
        if not self._is_told_all:
            self._deliver(LOST)


class SimulatedLink(ServerConnection):
    """The client's link: `choose` says which instance gets the next request."""

    def __init__(
        self,
        choose: Callable[[], Server],
        user_id: str,
        *,
        authorization: str | None = None,
        give_up_after: float = 60.0,
        seen: list[Connection],
        errors: list[BaseException],
    ) -> None:
        loop = running_loop()
        pace = RetryTiming(
            monotonic=lambda: START + loop.time(), sleep=asyncio.sleep, chance=loop.random.random
        )
        super().__init__(
            "http://simulated",
            token=authorization,
            user=user_id,
            give_up_after=give_up_after,
            silence=SILENCE,
            pace=pace,
        )
        self._choose = choose
        self._user_id = user_id
        self._seen = seen
        self._errors = errors

    def open(self) -> None:
        return None

    async def _send(self, request: ServerRequest, headers: dict[str, str]) -> Any:
        loop = running_loop()
        server = self._choose()
        await asyncio.sleep(loop.random.random() * LATENCY)
        if server.app is None or server.process is None:
            raise ServerUnreachable("connection refused", was_sent=False)
        if token := await self._fresh_token():
            headers["authorization"] = f"Bearer {token}"
        body = b""
        if request.body is not None:
            body = orjson.dumps(request.body)
            headers["content-type"] = "application/json"
        headers = {**headers, **request.headers}
        connection = Connection(loop.time(), server.index, self._user_id, request)
        self._seen.append(connection)
        response = SimulatedResponse(server, connection)
        response.begin(server.app, server.process, self._scope(request, headers, body), body)
        try:
            await response.opened()
        except BaseException:
            response.close()
            raise
        if not 200 <= response.status < 300:
            if response.status == 500:
                await asyncio.sleep(0)
                self._errors.extend([response.error] if response.error else [])
            raise await refusal(response)  # type: ignore[arg-type]
        return response

    def _scope(
        self, request: ServerRequest, headers: dict[str, str], body: bytes
    ) -> dict[str, Any]:
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode(),
            "root_path": "",
            "query_string": urlencode({**request.query, **self._named}).encode(),
            "headers": [(b"host", b"localhost"), (b"content-length", b"%d" % len(body)), *raw],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }


__all__ = ["ByteStream", "Connection", "Server", "SimulatedLink"]
