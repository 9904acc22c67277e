"""The least a chat server can do: take a message, sync it, pass the model's stream on, sync again.

No validation, no log, no owner, no tools: nothing that keeps its promises can be cheaper. It is the
row that ours is measured against: an application as one writes it with Starlette, and under `/bare`
the same without even that, as a plain ASGI callable.

Usage: python -m tests.bench.limit_server MODEL_URL DATABASE
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import apsw
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from sk_agents.cli.garbage_collection import collect_rarely
from sk_agents.persistence.sqlite.database import SqliteFiles
from sk_agents.persistence.sqlite.group_writer import GroupWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEADERS = [(b"content-type", b"text/event-stream")]
DONE = b"event: done\ndata: {}\n\n"


class Turns:
    def __init__(self, model_url: str, database: Path) -> None:
        self._url = model_url
        self._database = database
        self._history: dict[bytes, list[dict[str, Any]]] = {}
        self._session: aiohttp.ClientSession
        self._writer: GroupWriter

    @asynccontextmanager
    async def open(self, app: Starlette) -> AsyncIterator[None]:
        db = apsw.Connection(str(self._database))
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE message (no INTEGER PRIMARY KEY, chat TEXT, body BLOB)")
        files = SqliteFiles(self._database)
        self._writer = GroupWriter(
            db, self._database, files, began=lambda db: None, undone=lambda: None
        )
        self._writer.start()
        async with aiohttp.ClientSession() as self._session:
            collect_rarely()
            yield
        await self._writer.stop()

    async def streamed(self, request: Request) -> StreamingResponse:
        chat, history = await self._said(request.url.path, await request.body())

        async def frames() -> AsyncIterator[bytes]:
            texts: list[str] = []
            async for joined in self._frames(history, texts):
                yield joined
            await self._answered(chat, history, texts)
            yield DONE

        return StreamingResponse(frames(), media_type="text/event-stream")

    async def whole(self, request: Request) -> JSONResponse:
        chat, history = await self._said(request.url.path, await request.body())
        texts: list[str] = []
        async for _ in self._frames(history, texts):
            pass
        await self._answered(chat, history, texts)
        return JSONResponse({"output": "".join(texts)})

    async def with_tools(self, request: Request) -> StreamingResponse:
        """The calls are synced before they run, their results with the answer."""
        chat, history = await self._said(request.url.path, await request.body())

        async def frames() -> AsyncIterator[bytes]:
            texts: list[str] = []
            calls: list[dict[str, Any]] = []
            async for joined in self._frames(history, texts, calls):
                yield joined
            history.append({"role": "assistant", "tool_calls": calls})
            await self._store(chat, orjson.dumps(calls))
            for call in calls:
                place = orjson.loads(call["function"]["arguments"])["place"]
                result = f"There is a table in {place}."
                history.append({"role": "tool", "tool_call_id": call["id"], "content": result})
                yield b"event: tool_end\ndata: " + orjson.dumps({"result": result}) + b"\n\n"
            async for joined in self._frames(history, texts):
                yield joined
            await self._answered(chat, history, texts)
            yield DONE

        return StreamingResponse(frames(), media_type="text/event-stream")

    async def bare(self, scope: Scope, receive: Receive, send: Send) -> None:
        chat, history = await self._said(scope["path"], (await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        texts: list[str] = []
        async for joined in self._frames(history, texts):
            await send({"type": "http.response.body", "body": joined, "more_body": True})
        await self._answered(chat, history, texts)
        await send({"type": "http.response.body", "body": DONE})

    async def _said(self, path: str, body: bytes) -> tuple[bytes, list[dict[str, Any]]]:
        chat = path.encode()
        history = self._history.setdefault(chat, [])
        history.append({"role": "user", "content": orjson.loads(body)["user_message"]})
        await self._store(chat, body)
        return chat, history

    async def _answered(self, chat: bytes, history: list[dict[str, Any]], texts: list[str]) -> None:
        text = "".join(texts)
        history.append({"role": "assistant", "content": text})
        await self._store(chat, text.encode())

    async def _frames(
        self,
        history: list[dict[str, Any]],
        texts: list[str],
        calls: list[dict[str, Any]] | None = None,
    ) -> AsyncIterator[bytes]:
        """What arrives together leaves together; texts and calls are collected on the way."""
        rest = b""
        prompt = orjson.dumps({"model": "bench", "stream": True, "messages": history})
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._url, data=prompt, headers=headers) as response:
            async for read in response.content.iter_any():
                *events, rest = (rest + read).split(b"\n\n")
                frames = []
                for event in events:
                    if event == b"data: [DONE]":
                        break
                    choices = orjson.loads(event[6:])["choices"]
                    delta = choices[0]["delta"] if choices else {}
                    if calls is not None:
                        calls += delta.get("tool_calls", ())
                    content = delta.get("content")
                    if content:
                        texts.append(content)
                        data = orjson.dumps({"content": content})
                        frames.append(b"event: answer_delta\ndata: " + data + b"\n\n")
                if frames:
                    yield b"".join(frames)

    async def _store(self, chat: bytes, body: bytes) -> None:
        await self._writer.run(
            lambda db: db.execute("INSERT INTO message (chat, body) VALUES (?, ?)", (chat, body))
        )


class Bare:
    """As a class, since Starlette takes functions for its own kind of endpoint."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._turns.bare(scope, receive, send)


def main(model_url: str, database: str) -> None:
    turns = Turns(model_url, Path(database))
    routes = [
        Route("/bare/{chat}", Bare(turns), methods=["POST"]),
        Route("/tools/{chat}", turns.with_tools, methods=["POST"]),
        Route("/json/{chat}", turns.whole, methods=["POST"]),
        Route("/{chat}", turns.streamed, methods=["POST"]),
    ]
    app = Starlette(routes=routes, lifespan=turns.open)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_config=None, access_log=False, http="httptools")
    asyncio.Runner(loop_factory=config.get_loop_factory()).run(
        uvicorn.Server(config).serve(sockets=[listener])
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
