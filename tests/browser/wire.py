"""The network between a page and its server, which can fail in the ways networks do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

PIECE = 65_536
STREAM = b"/events HTTP/1.1"


class Link:
    """One connection. `is_stream` from the moment at which it asks for a stream of events."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.ends = [writer]
        self.is_stream = False
        self.is_frozen = False

    def close(self) -> None:
        for end in self.ends:
            end.transport.abort()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(PIECE):
                self.is_stream = self.is_stream or STREAM in piece
                if not self.is_frozen:
                    writer.write(piece)
                    await writer.drain()
        self.close()


class Wire:
    """Relays to the server's port. `cut` closes everything; `freeze` is what a sleep does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_cut = False
        self._links: set[Link] = set()

    def cut(self) -> None:
        self._is_cut = True
        for link in self._links:
            link.close()

    def mend(self) -> None:
        self._is_cut = False

    def freeze(self) -> None:
        """Streams stay connected and say nothing any more; all else is closed. New ones work."""
        for link in self._links:
            link.is_frozen = True
            if not link.is_stream:
                link.close()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(writer)
        self._links.add(link)
        try:
            if self._is_cut:
                return
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            link.ends.append(back)
            await asyncio.gather(link.pump(reader, back), link.pump(there, writer))
        except OSError:
            pass
        finally:
            self._links.discard(link)
            link.close()


@asynccontextmanager
async def wired(port: int) -> AsyncIterator[tuple[Wire, str]]:
    """A wire to this port, and the address at its other end."""
    wire = Wire(port)
    listener = await asyncio.start_server(wire.relay, "127.0.0.1", 0)
    try:
        yield wire, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        wire.cut()
        listener.close()
