"""Load for chat servers: conversations as bare protocols, cheap enough not to be what is measured.

HTTP as far as a chat server's own answers need it: one request at a time on a connection, answers
in chunks, the last of them empty.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import orjson

END = b"0\r\n\r\n"
# Of the answer, as a preview or whole.
TOKEN = b"event: answer"
BODY = orjson.dumps({"user_message": "What does it depend on?"})


@dataclass(slots=True)
class Load:
    """What so many turns took: seconds in all, and to the first token of each."""

    seconds: float = 0.0
    turns: int = 0
    first_tokens: list[float] = field(default_factory=list)


class JsonConversation(asyncio.Protocol):
    """As `Conversation`, with answers of a known length; its first token is the whole answer."""

    def __init__(self, asked: bytes, turns: int, load: Load, done: asyncio.Future[None]) -> None:
        self._asked = asked
        self._left = turns
        self._load = load
        self._done = done
        self._sent = 0.0
        self._seen = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, found, body = self._seen.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(AssertionError(bytes(self._seen[-300:])))
            return
        self._load.first_tokens.append(time.perf_counter() - self._sent)
        self._load.turns += 1
        self._left -= 1
        if self._left:
            self._ask()
        else:
            self._transport.close()
            self._done.set_result(None)

    def _ask(self) -> None:
        self._seen, self._sent = b"", time.perf_counter()
        self._transport.write(self._asked)


class TaskConversation(JsonConversation):
    """The same, going on with the task that the first reply has made."""

    def _ask(self) -> None:
        if self._seen:
            task_id = orjson.loads(self._seen.partition(b"\r\n\r\n")[2])["task_id"]
            head, _, body = self._asked.partition(b"\r\n\r\n")
            path, host = head.split(b" ")[1].decode(), _host(head)
            document = {**orjson.loads(body), "task_id": task_id}
            self._asked = request(path, host, orjson.dumps(document))
        super()._ask()


def _host(head: bytes) -> str:
    return head.partition(b"Host: ")[2].partition(b"\r\n")[0].decode()


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])


def _place(address: str) -> tuple[str, int]:
    url = urlsplit(address)
    return url.hostname or "", url.port or 80


def request(path: str, host: str, body: bytes = BODY) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Conversation(asyncio.Protocol):
    """Sends the same request so many times, each when the last was answered."""

    def __init__(self, asked: bytes, turns: int, load: Load, done: asyncio.Future[None]) -> None:
        self._asked = asked
        self._left = turns
        self._load = load
        self._done = done
        self._sent = 0.0
        self._has_token = False
        self._tail = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        seen = self._tail + data
        if not self._has_token and TOKEN in seen:
            self._has_token = True
            self._load.first_tokens.append(time.perf_counter() - self._sent)
        self._tail = seen[-16:]
        if seen.endswith(END):
            if not self._has_token:
                self._fail(f"a turn without an answer: {bytes(seen[-300:])!r}")
                return
            self._load.turns += 1
            self._left -= 1
            if self._left:
                self._ask()
            else:
                self._transport.close()
                self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the server hung up: {exc}")

    def _ask(self) -> None:
        self._tail, self._has_token = b"", False
        self._sent = time.perf_counter()
        self._transport.write(self._asked)

    def _fail(self, reason: str) -> None:
        if not self._done.done():
            self._done.set_exception(AssertionError(reason))


async def converse(
    address: str,
    path: str,
    conversations: int,
    turns: int,
    *,
    body: bytes = BODY,
    protocol: type[Conversation] | type[JsonConversation] = Conversation,
) -> Load:
    """`path` has a place for the conversation's number."""
    host, port = _place(address)
    loop = asyncio.get_running_loop()
    load = Load()
    waiting: list[asyncio.Future[None]] = [loop.create_future() for _ in range(conversations)]
    began = time.perf_counter()
    for number, done in enumerate(waiting):
        asked = request(path.format(number), f"{host}:{port}", body)
        await loop.create_connection(
            lambda asked=asked, done=done: protocol(asked, turns, load, done),  # type: ignore[misc]
            host,
            port,
        )
    await asyncio.gather(*waiting)
    load.seconds = time.perf_counter() - began
    return load


class _Held(asyncio.Protocol):
    def __init__(self, asked: bytes, begun: asyncio.Future[None]) -> None:
        self._asked = asked
        self._begun = begun

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._asked)

    def data_received(self, data: bytes) -> None:
        if not self._begun.done():
            self._begun.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._begun.done():
            self._begun.set_exception(AssertionError("the server hung up"))


async def hold(address: str, path: str, streams: int) -> list[asyncio.BaseTransport]:
    """So many streams, open and begun."""
    host, port = _place(address)
    loop = asyncio.get_running_loop()
    held: list[asyncio.BaseTransport] = []
    begun: list[asyncio.Future[None]] = []
    for number in range(streams):
        future: asyncio.Future[None] = loop.create_future()
        begun.append(future)
        transport, _ = await loop.create_connection(
            lambda number=number, future=future: _Held(  # type: ignore[misc]
                request(path.format(number), f"{host}:{port}"), future
            ),
            host,
            port,
        )
        held.append(transport)
    await asyncio.gather(*begun)
    return held
