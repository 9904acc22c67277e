"""The least a chat server can do: take a message, sync it, pass the model's stream on, sync again.

No validation, no log, no owner, no tools: nothing that keeps its promises can be cheaper. It is the
row that ours is measured against.

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
from starlette.routing import Route

from sk_agents.cli.collector import calm_collector
from sk_agents.persistence.group_writer import GroupWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEADERS = [(b"content-type", b"text/event-stream")]


class Turn:
    """The one route, as a plain ASGI application."""

    def __init__(self, model_url: str, database: Path) -> None:
        self._url = model_url
        self._database = database
        self._history: dict[bytes, list[dict[str, str]]] = {}
        self._session: aiohttp.ClientSession
        self._writer: GroupWriter

    @asynccontextmanager
    async def open(self, app: Starlette) -> AsyncIterator[None]:
        db = apsw.Connection(str(self._database))
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE message (no INTEGER PRIMARY KEY, chat TEXT, body BLOB)")
        self._writer = GroupWriter(db, self._database, began=lambda db: None, undone=lambda: None)
        self._writer.start()
        async with aiohttp.ClientSession() as self._session:
            calm_collector()
            yield
        await self._writer.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        document = orjson.loads(body)
        chat = scope["path"].encode()
        history = self._history.setdefault(chat, [])
        history.append({"role": "user", "content": document["user_message"]})
        await self._store(chat, body)
        streams = not scope["path"].startswith("/json/")
        if streams:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        text = await self._answer(history, send if streams else None)
        history.append({"role": "assistant", "content": text})
        await self._store(chat, text.encode())
        if streams:
            await send({"type": "http.response.body", "body": b"event: done\ndata: {}\n\n"})
        else:
            await _send_json(send, orjson.dumps({"output": text}))

    async def _answer(self, history: list[dict[str, str]], send: Send | None) -> str:
        texts, rest = [], b""
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
                    content = choices[0]["delta"].get("content") if choices else None
                    if content:
                        texts.append(content)
                        delta = orjson.dumps({"content": content})
                        frames.append(b"event: answer_delta\ndata: " + delta + b"\n\n")
                if frames and send is not None:
                    joined = b"".join(frames)
                    await send({"type": "http.response.body", "body": joined, "more_body": True})
        return "".join(texts)

    async def _store(self, chat: bytes, body: bytes) -> None:
        await self._writer.run(
            lambda db: db.execute("INSERT INTO message (chat, body) VALUES (?, ?)", (chat, body))
        )


async def _send_json(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main(model_url: str, database: str) -> None:
    turn = Turn(model_url, Path(database))
    paths = ("/{chat}", "/json/{chat}")
    app = Starlette(
        routes=[Route(path, turn, methods=["POST"]) for path in paths], lifespan=turn.open
    )
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_config=None, access_log=False, http="httptools")
    asyncio.Runner(loop_factory=config.get_loop_factory()).run(
        uvicorn.Server(config).serve(sockets=[listener])
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
