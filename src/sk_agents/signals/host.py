"""Wake-ups and messages between the processes of one host, over sockets in a folder of their own.

Each process listens at a socket whose name is its address, and connects to those that are there
already. So every two processes have a connection, however many come and go; one that ends is gone
with its connections, and the file of one that was killed is removed by the next that finds it.

A process that reads nothing loses what is sent to it beyond a bound: nothing here is stored, and
nothing waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self, cast
from uuid import uuid4

from sk_agents.private_files import make_private_folder
from sk_agents.signals.local import LocalSignals

logger = logging.getLogger(__name__)

MOST_BYTES = 256 * 1024
# Sent to a process that does not read it: what comes beyond is dropped.
MOST_UNSENT = 1024 * 1024
# Two sendings are at least so far apart: wake-ups in between are sent together. At 5 ms they took a
# seventh of the CPU of a turn with two workers, at 20 ms still 6 of its 580 us.
COLLECT_SECONDS = 0.05
# How often a process looks for one that it has no connection to.
LOOK_SECONDS = 5.0

_LENGTH = 4
_HELLO, _WAKE, _MESSAGE = b"h", b"w", b"m"
_SUFFIX = ".sock"

Receiver = Callable[[str, bytes], None]


class HostPeers:
    """The other processes that use the same folder. Enter it before use.

    A folder that cannot be used is logged once: there are no peers then.
    """

    most_bytes = MOST_BYTES

    def __init__(self, folder: Path) -> None:
        self.address = f"{os.getpid()}-{uuid4().hex[:12]}"
        self._folder = folder
        self._receivers: list[Receiver] = []
        self._wake_receivers: list[Callable[[str], None]] = []
        self._links: dict[str, _Link] = {}
        self._all_links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._listen()
            await self._connect_to_all()
        except OSError as error:
            extra = {"folder": str(self._folder), "error": error.strerror or type(error).__name__}
            logger.warning("no wake-ups from other processes: they are polled", extra=extra)
        else:
            self._looking = asyncio.create_task(self._look_for_others())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        _remove(self._folder / f"{self.address}{_SUFFIX}")
        if self._server is not None:
            self._server.close()
        for link in list(self._all_links):
            link.close()
        # Their transports end in the next steps of the loop.
        await asyncio.sleep(0)

    @property
    def count(self) -> int:
        """How many others there are."""
        return len(self._links)

    def send(self, message: bytes, *, to: str | None = None) -> None:
        self._send(_MESSAGE + message, to)

    def receive(self, receiver: Receiver) -> None:
        self._receivers.append(receiver)

    def send_wake_ups(self, thread_ids: set[str]) -> None:
        self._send(_WAKE + "\0".join(thread_ids).encode(), None)

    def receive_wake_ups(self, receiver: Callable[[str], None]) -> None:
        self._wake_receivers.append(receiver)

    def _send(self, frame: bytes, to: str | None) -> None:
        links = self._links.values() if to is None else filter(None, [self._links.get(to)])
        for link in links:
            link.send(frame)

    def link_greeted(self, link: _Link, address: str) -> None:
        # Two that start at the same time connect to each other twice; one of the two is used.
        self._links.setdefault(address, link)

    def link_opened(self, link: _Link) -> None:
        self._all_links.add(link)
        link.send(_HELLO + self.address.encode())

    def link_lost(self, link: _Link) -> None:
        self._all_links.discard(link)
        if self._links.get(link.address) is link:
            del self._links[link.address]
            for other in self._all_links:
                if other.address == link.address:
                    self._links[link.address] = other

    def link_received(self, link: _Link, kind: bytes, content: bytes) -> None:
        if kind == _WAKE:
            for thread_id in content.decode().split("\0"):
                for wake in self._wake_receivers:
                    wake(thread_id)
        elif kind == _MESSAGE:
            for receiver in self._receivers:
                receiver(link.address, content)

    async def _listen(self) -> None:
        make_private_folder(self._folder)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            # Not seen by others before it listens: who is refused takes the file for a dead one's.
            with tempfile.TemporaryDirectory(dir=self._folder) as hidden:
                with _within_reach(Path(hidden)) as reachable:
                    listener.bind(f"{reachable}/s")
                listener.listen(128)
                os.rename(f"{hidden}/s", self._folder / f"{self.address}{_SUFFIX}")
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(lambda: _Link(self), sock=listener)
        except BaseException:
            listener.close()
            raise

    async def _connect_to_all(self) -> None:
        own = f"{self.address}{_SUFFIX}"
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path.name != own and path.name.removesuffix(_SUFFIX) not in self._links:
                await self._connect(path)

    async def _connect(self, path: Path) -> None:
        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            with _within_reach(path.parent) as reachable:
                # At once or not at all: a socket of this host that listens has room, or is stuck.
                connection.connect(f"{reachable}/{path.name}")
            await loop.create_unix_connection(lambda: _Link(self), sock=connection)
        except ConnectionRefusedError:
            connection.close()
            _remove(path)
        except OSError as error:
            connection.close()
            extra = {"file": path.name, "error": error.strerror}
            logger.debug("another process cannot be reached", extra=extra)

    async def _look_for_others(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with suppress(OSError):
                await self._connect_to_all()


class _Link(asyncio.Protocol):
    """A connection with another process: messages, each with its length before it."""

    def __init__(self, peers: HostPeers) -> None:
        self._peers = peers
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are none by name.
        self._transport = cast(asyncio.Transport, transport)
        self._peers.link_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._peers.link_lost(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def send(self, frame: bytes) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() < MOST_UNSENT:
            transport.write(len(frame).to_bytes(_LENGTH, "big") + frame)

    def data_received(self, data: bytes) -> None:
        unread = self._unread
        unread += data
        while len(unread) >= _LENGTH:
            end = _LENGTH + int.from_bytes(unread[:_LENGTH], "big")
            if end > MOST_UNSENT:
                logger.warning("another process sends what is no message: it is not listened to")
                self.close()
                return
            if len(unread) < end:
                return
            frame = bytes(unread[_LENGTH:end])
            del unread[:end]
            self._take(frame[:1], frame[1:])

    def _take(self, kind: bytes, content: bytes) -> None:
        if kind == _HELLO:
            self.address = content.decode()
            self._peers.link_greeted(self, self.address)
        elif self.address:
            self._peers.link_received(self, kind, content)


class HostSignals(LocalSignals):
    """Wake-ups in this process at once, in the others a moment later."""

    def __init__(self, peers: HostPeers) -> None:
        super().__init__()
        self._peers = peers
        self._unsent: set[str] = set()
        self._sent_at = float("-inf")
        peers.receive_wake_ups(self.notified_elsewhere)

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        super().notify(thread_id)
        if local or not self._peers.count:
            return
        if not self._unsent:
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._sent_at + COLLECT_SECONDS), self._send)
        self._unsent.add(thread_id)

    def _send(self) -> None:
        self._sent_at = asyncio.get_running_loop().time()
        unsent, self._unsent = self._unsent, set()
        self._peers.send_wake_ups(unsent)


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


@contextmanager
def _within_reach(folder: Path) -> Iterator[str]:
    """A short name of the folder: the path of a socket may have about a hundred bytes."""
    if len(os.fsencode(folder)) < 60 or not os.path.isdir("/proc/self/fd"):
        yield str(folder)
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
