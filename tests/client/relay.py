"""A relay on a port of its own, so that connections can be cut and the server behind replaced."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """`cuts` are for one answer each: after how many bytes of it, head included, it is cut.

    `last_size` is how many bytes the last whole answer had.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.cuts: list[int] = []
        self.last_size = 0
        self.url = ""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()
        await self._server.wait_closed()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection serves one request: its end is the answer's end."""
        self._open.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        body = await reader.readexactly(length)
        target = urlsplit(self.target)
        behind, ahead = await asyncio.open_connection(target.hostname, target.port)
        try:
            ahead.write(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + body)
            size, cut = 0, self.cuts.pop(0) if self.cuts else None
            while read := await behind.read(65536):
                writer.write(read if cut is None else read[: max(0, cut - size)])
                await writer.drain()
                size += len(read)
                if cut is not None and size >= cut:
                    return
            self.last_size = size
        finally:
            ahead.close()
