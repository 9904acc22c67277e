"""Between a client and a server, a proxy whose connections can be cut, delayed and black-holed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Literal, Self

Fault = Literal["none", "cut", "black_hole", "lost_answers"]


class TcpProxy:
    """Passes bytes on to `target`, `delay` seconds late each way, unless there is a `fault`.

    While connections are cut, those that are open end and new ones are closed at once. In a black
    hole they stay open and nothing passes; what was sent then is lost with its connection. While
    answers are lost, requests reach the target.
    `requests` counts what clients have sent in one piece: the round trips of a client that waits.
    `lost` is set once bytes were lost.
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.delay = 0.0
        self.requests = 0
        self.lost = asyncio.Event()
        self.port = 0
        self._fault: Fault = "none"
        self._unanswered: bytes | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        self._drop_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._fault = "cut"
        self._drop_all()

    def black_hole(self) -> None:
        self._fault = "black_hole"

    def lose_answers(self, *, to: bytes) -> None:
        """From the request that contains these bytes on."""
        self._unanswered = to

    def heal(self) -> None:
        """New connections pass; those that lost bytes end."""
        if self._fault != "none":
            self._drop_all()
        self._fault = "none"

    def _drop_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            # A cancelled handler would be reported as an error by asyncio's streams.
            if self._fault != "cut":
                with suppress(OSError, asyncio.CancelledError):
                    await self._join(reader, writer)
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, ahead = await asyncio.open_connection(*self.target)
        self._writers.add(ahead)
        try:
            ways = [
                asyncio.create_task(self._pass(reader, ahead, is_request=True)),
                asyncio.create_task(self._pass(behind, writer, is_request=False)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._writers.discard(ahead)
            ahead.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                self.requests += is_request
                if is_request and self._unanswered is not None and self._unanswered in data:
                    self._fault, self._unanswered = "lost_answers", None
                if self.delay:
                    await asyncio.sleep(self.delay)
                if self._fault == "black_hole" or self._fault == "lost_answers" and not is_request:
                    self.lost.set()
                    continue
                writer.write(data)
                await writer.drain()
