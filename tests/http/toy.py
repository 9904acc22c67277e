"""A small application on the edge, in this process or behind a real server."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import httpx
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from sk_agents.exceptions import ThreadNotFound
from sk_agents.http.body import read_json
from sk_agents.http.connections import ConnectionLimits, http_protocol
from sk_agents.http.front import TealApp
from sk_agents.http.ids import canonical_uuid, chat_id, idempotency_key
from sk_agents.http.limits import StreamSlots
from sk_agents.http.sse import EventStream, Frames, LastFrames
from tests.patience import seconds

MAX_BYTES = 2000
PATIENCE = seconds(10)
# More than a connection's buffers hold.
FLOOD = 8 * 1024 * 1024


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")

    content: str
    items: list[int] | None = None
    data: Any = None


MESSAGE = TypeAdapter(Message)
ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


def toy_app(
    *,
    hosts: Sequence[str] | None = None,
    origins: Sequence[str] = (),
    body_seconds: float = PATIENCE,
    slots: StreamSlots | None = None,
) -> FastAPI:
    """`state.ran` lists the requests whose work was done; `/late` waits for `state.may_answer`."""
    app = TealApp(hosts=hosts, origins=origins)
    app.state.ran = []
    app.state.may_answer = threading.Event()
    held = slots or StreamSlots()

    async def say(request: Request) -> JSONResponse:
        name = chat_id(request.path_params["chat_id"])
        message = await read_json(
            request.scope, request.receive, MESSAGE, max_bytes=MAX_BYTES, timeout=body_seconds
        )
        app.state.ran.append((name, message.content))
        return JSONResponse({"content": message.content})

    async def anything(request: Request) -> JSONResponse:
        value = await read_json(request.scope, request.receive, ANYTHING, optional=True)
        app.state.ran.append(("anything", value))
        return JSONResponse({"value": value})

    async def task(request: Request) -> JSONResponse:
        canonical_uuid(request.path_params["task_id"])
        raise ThreadNotFound

    async def chat(request: Request) -> JSONResponse:
        return JSONResponse({"chat_id": chat_id(request.path_params["chat_id"])})

    async def seen(request: Request) -> JSONResponse:
        body = await request.body()
        headers = [[name.decode(), value.decode("latin-1")] for name, value in request.headers.raw]
        return JSONResponse(
            {"headers": headers, "body": body.decode(), "key": idempotency_key(request.scope)}
        )

    async def stream(request: Request) -> Response:
        return _Held(held, request.query_params["user"])

    async def flood(request: Request) -> Response:
        return _Held(held, request.query_params["user"], _FLOODS[request.query_params["kind"]]())

    async def late(request: Request) -> JSONResponse:
        await asyncio.to_thread(app.state.may_answer.wait, PATIENCE)
        return JSONResponse({"content": "late"})

    async def file(request: Request) -> Response:
        return Response(b"x" * FLOOD)

    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        async for text in websocket.iter_text():
            await websocket.send_text(text)

    app.router.routes += [
        WebSocketRoute("/echo", echo),
        Route("/chats/{chat_id}/interactions", say, methods=["POST"]),
        Route("/chats/{chat_id}", chat, methods=["GET"]),
        Route("/tasks/{task_id}", task, methods=["GET"]),
        Route("/anything", anything, methods=["POST"]),
        Route("/seen", seen, methods=["GET", "POST"]),
        Route("/stream", stream, methods=["GET"]),
        Route("/flood", flood, methods=["GET"]),
        Route("/late", late, methods=["POST"]),
        Route("/file", file, methods=["GET"]),
    ]
    return app


class _Held(Response):
    """A stream in a slot of its user; without an end, unless it is given another."""

    def __init__(self, slots: StreamSlots, user: str, frames: Frames | None = None) -> None:
        self._slots = slots
        self._user = user
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        frames = self._frames or _endless()
        with self._slots.held(self._user):
            await EventStream(frames, keepalive=0.05)(scope, receive, send)


async def _endless() -> AsyncGenerator[Sequence[bytes], None]:
    yield [b"event: hello\ndata: {}\n\n"]
    await asyncio.Event().wait()


async def _many_frames() -> Frames:
    while True:
        yield [b"data: %b\n\n" % (b"x" * 1000)] * 64


async def _one_frame_then_silence() -> Frames:
    yield [b"data: %b\n\n" % (b"x" * FLOOD)]
    await asyncio.Event().wait()


async def _all_in_the_last_frame() -> Frames:
    yield LastFrames([b"data: %b\n\n" % (b"x" * FLOOD)])


_FLOODS = {
    "many frames": _many_frames,
    "one frame, then silence": _one_frame_then_silence,
    "all in the last frame": _all_in_the_last_frame,
}


def inside(app: FastAPI, base_url: str = "http://test") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=base_url)


@contextmanager
def serving(
    app: FastAPI, limits: ConnectionLimits | None = None, *, rest_seconds: float = 5
) -> Iterator[int]:
    """The port of a real server with our connections, as `teal serve` has it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=http_protocol(limits or ConnectionLimits()),
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                timeout_keep_alive=rest_seconds,  # type: ignore[arg-type]  # any number will do
                timeout_graceful_shutdown=1,
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


class Wire:
    """One raw connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Wire:
        self.socket.sendall(data)
        return self

    def rest(self) -> bytes:
        """All that comes until the server closes."""
        received = b""
        while part := self.socket.recv(65536):
            received += part
        return received

    def until(self, mark: bytes) -> bytes:
        received = b""
        while mark not in received:
            part = self.socket.recv(65536)
            assert part, received
            received += part
        return received


def eventually(condition: Any) -> None:
    """Wait for what another thread brings about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def request(
    method: str, target: str, *headers: str, body: bytes = b"", host: str = "localhost"
) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def post(body: bytes, *headers: str, target: str = "/chats/c/interactions") -> bytes:
    return request("POST", target, "Content-Type: application/json", *headers, body=body)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])
