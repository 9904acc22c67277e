"""A server on a real socket that tells one interaction, and can be cut, delayed and restarted."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from sk_agents.client import TealClient
from tests.client.paces import SettableTime

INTERACTION = "int_1"
BEFORE_THE_HEAD = -1
"""As a cut: not even a status line arrives."""


def id_at(seq: int) -> str:
    """As a server names the event at this place."""
    return f"{seq}-{zlib.crc32(b'%d' % seq):08x}"


def told(seq: int | None, name: str, payload: Mapping[str, Any]) -> bytes:
    data = json.dumps({"interaction_id": INTERACTION, **payload}, ensure_ascii=False)
    id = "" if seq is None else f"id: {id_at(seq)}\n"
    return f"{id}event: {name}\ndata: {data}\n\n".encode()


def said(content: str, offset: int, attempt: int = 1) -> bytes:
    payload = {"round": 1, "attempt": attempt, "offset": offset, "content": content}
    return told(None, "answer_delta", payload)


def stream_end(retry_ms: int = 3000) -> bytes:
    return b"retry: %d\n" % retry_ms + told(None, "stream_end", {"reason": "shutting_down"})


STARTED = (4, told(4, "interaction_started", {"chat_id": "c", "status": "RUNNING"}))
COMPLETE = (9, told(9, "interaction_complete", {"status": "COMPLETED"}))
PLAIN: list[tuple[int | None, bytes]] = [
    STARTED,
    (None, said("Grüß ", 0)),
    (None, b": keepalive\n\n"),
    (None, said("dich 🦆", 5)),
    (8, told(8, "answer", {"type": "ANSWER", "content": "Grüß dich 🦆"})),
    COMPLETE,
]


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(slots=True)
class Loopback:
    """`cuts` are for one connection each: after how many bytes of its stream it is cut.

    `refusals` are answered first, one a request; `documents` are what paths without a stream say.
    A `hold` keeps a stream open after its last frame until it is set.
    """

    log: list[tuple[int | None, bytes]] = field(default_factory=lambda: list(PLAIN))
    cuts: list[int] = field(default_factory=list)
    refusals: list[Callable[[], web.StreamResponse]] = field(default_factory=list)
    documents: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    last_frames: list[bytes] = field(default_factory=list)
    hold: asyncio.Event | None = None
    seen: list[Seen] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    is_held: asyncio.Event = field(default_factory=asyncio.Event)
    is_left: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        query = dict(request.query)
        self.seen.append(Seen(request.method, request.path, query, request.headers, body))
        if self.refusals:
            return self.refusals.pop(0)()
        path = request.path
        if request.method == "POST" and path.endswith(("/interactions", "/edit", "/regenerate")):
            self.keys.add(request.headers["Idempotency-Key"])
            return await self._tell(request, None)
        if path.endswith("/events"):
            position = request.headers.get("Last-Event-ID") or query.get("after")
            place = int(position.partition("-")[0]) if position else None
            return await self._tell(request, place)
        documents = self.documents[request.method, path]
        document = documents.pop(0) if len(documents) > 1 else documents[0]
        return web.Response(status=204) if document is None else web.json_response(document)

    def _after(self, position: int | None) -> list[bytes]:
        """As a server does: what is stored after `position`, and what follows from it."""
        if position is None:
            return [frame for _, frame in self.log]
        places = [at for at, (seq, _) in enumerate(self.log) if seq is not None and seq <= position]
        return [frame for _, frame in self.log[places[-1] + 1 if places else 0 :]]

    async def _tell(self, request: web.Request, position: int | None) -> web.StreamResponse:
        frames = self._after(position)
        if position is not None and not frames:
            return web.Response(status=204)
        data = b"".join(frames)
        cut = self.cuts.pop(0) if self.cuts else None
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        assert request.transport is not None
        if cut == BEFORE_THE_HEAD:
            request.transport.close()
            return response
        await response.prepare(request)
        if self.last_frames and cut is not None:
            await response.write(data[:cut] + self.last_frames.pop(0))
            return response
        await response.write(data[:cut])
        if cut is not None:
            request.transport.close()
        elif self.hold is not None:
            self.is_held.set()
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.is_left.set()
                raise
        return response


def refusal(
    status: int, code: str, headers: Mapping[str, str] | None = None, **members: Any
) -> Callable[[], web.StreamResponse]:
    problem = {"status": status, "code": code, "detail": "No.", "correlation_id": "x1", **members}
    return lambda: web.Response(
        status=status,
        text=json.dumps(problem),
        content_type="application/problem+json",
        headers=headers,
    )


@asynccontextmanager
async def serving(server: Loopback) -> AsyncIterator[Loopback]:
    await server.start()
    try:
        yield server
    finally:
        if server.hold is not None:
            server.hold.set()
        await server.stop()


@asynccontextmanager
async def connected(
    server: Loopback, *, time: SettableTime | None = None, **options: Any
) -> AsyncIterator[TealClient]:
    pace = (time or SettableTime()).pace
    async with serving(server), TealClient(server.url, pace=pace, **options) as teal:
        yield teal
