"""A loopback server that answers with exact bytes, for what no well-behaved server would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Self

from sk_agents.engine.models import Message
from sk_agents.engine.ports import Model
from sk_agents.engine.turns import ModelPiece, Prompt, TextDelta
from sk_agents.llm.failures import Timing
from sk_agents.testing.predictable import SettableClock
from tests.patience import seconds

HELLO = Prompt([Message(role="user", content="hello")])
DONE = b"data: [DONE]\n\n"
Answer = Sequence[bytes]


def head(status: str = "200 OK", content_type: str = "text/event-stream", *more: str) -> bytes:
    """A response that ends with its connection."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", "Connection: close", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def event(document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def chunk(finish_reason: str | None = None, **delta: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def said(text: str) -> Answer:
    return [head(), chunk(content=text), chunk("stop"), DONE]


class RawServer:
    """Answers each request with the next of `answers`, then closes the connection.

    An empty answer closes without a word. `closed` is set when a client has gone away while
    `holds` kept the connection open after the answer.
    """

    def __init__(self, *answers: Answer, holds: bool = False) -> None:
        self._answers = list(answers)
        self._holds = holds
        self._server: asyncio.Server | None = None
        self.asked = 0
        self.closed = asyncio.Event()
        self.base_url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        length = int(request.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        await reader.readexactly(length)
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        try:
            for segment in answer:
                writer.write(segment)
                await writer.drain()
            if self._holds:
                await reader.read()
                self.closed.set()
        except ConnectionError:
            self.closed.set()
        writer.close()


class Waits:
    """A `Timing` whose waits take no time; `seconds` are those that were asked for."""

    def __init__(self, clock: SettableClock | None = None) -> None:
        self.clock = clock or SettableClock()
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.clock.advance(seconds)

    @property
    def timing(self) -> Timing:
        return Timing(self.clock, self.sleep, lambda: 1.0)


async def pieces_of(model: Model, prompt: Prompt = HELLO) -> list[ModelPiece]:
    # A real model on a machine that is busy with other tests takes its time.
    async with asyncio.timeout(seconds(100)):
        return [piece async for pieces in model.stream(prompt) for piece in pieces]


async def text_of(model: Model, prompt: Prompt = HELLO) -> str:
    return "".join(p.content for p in await pieces_of(model, prompt) if isinstance(p, TextDelta))


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if is_so():
            return
        await asyncio.sleep(0.001)
    raise TimeoutError
