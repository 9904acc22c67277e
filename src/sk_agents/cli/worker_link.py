"""One of several workers and its supervisor: what they say to each other, from the worker's side.

Both send JSON objects, one a line, over a pair of sockets. The supervisor says when to stop and how
the other workers are. When it is gone, however it ended, the worker hands its runs over and ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, Protocol

from sk_agents.telemetry.worker_pages import merged_pages

logger = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
# A page of metrics is a long line.
MOST_BYTES = 16 * 1024 * 1024
# How long one worker waits for the pages of the others.
PAGES_SECONDS = 2.0
# How long a worker whose supervisor is gone may take to end by itself.
ORPHAN_SECONDS = 25.0
PARENT_SECONDS = 1.0


class Stop(Protocol):
    def __call__(self, *, at_once: bool) -> None:
        """Hand runs over and end; with `at_once`, without waiting for open requests."""


class WorkerLink:
    """`listener` is this worker's socket of the address that all workers serve."""

    def __init__(self, number: int, listener: socket.socket, control: socket.socket) -> None:
        self.number = number
        self.listener = listener
        self._control = control
        self._writer: asyncio.StreamWriter | None = None
        self._workers: list[dict[str, Any]] = []
        self._page: Callable[[], bytes] | None = None
        self._asked: dict[int, asyncio.Future[dict[str, str | None]]] = {}
        self._numbers = count()

    def ready(self, line: str) -> None:
        self._send({"type": "ready", "line": line})

    def states(self) -> list[dict[str, Any]]:
        return self._workers

    def give_metrics(self, page: Callable[[], bytes]) -> None:
        """What the others get when they ask for this worker's page."""
        self._page = page

    async def metrics(self, own: bytes) -> bytes:
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        pages: dict[str, str | None] = {}
        try:
            self._send({"type": "ask_metrics", "id": number})
            with suppress(TimeoutError):
                async with asyncio.timeout(PAGES_SECONDS):
                    pages = await asked
        finally:
            del self._asked[number]
        merged = {int(number): page for number, page in pages.items()}
        return merged_pages(dict(sorted({**merged, self.number: own.decode()}.items()))).encode()

    @asynccontextmanager
    async def opened(self, stop: Stop) -> AsyncIterator[None]:
        """Within the block the supervisor's orders are carried out."""
        reader, self._writer = await asyncio.open_unix_connection(
            sock=self._control, limit=MOST_BYTES
        )
        threading.Thread(target=_end_with_parent, name="orphan-watch", daemon=True).start()
        tasks = [
            asyncio.create_task(self._listen(reader, stop)),
            asyncio.create_task(self._beat()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._writer.close()

    async def _beat(self) -> None:
        while True:
            self._send({"type": "beat"})
            await asyncio.sleep(BEAT_SECONDS)

    async def _listen(self, reader: asyncio.StreamReader, stop: Stop) -> None:
        with suppress(OSError):
            async for line in reader:
                self._take(json.loads(line), stop)
        logger.error("the supervisor is gone: this worker ends")
        stop(at_once=False)

    def _take(self, message: dict[str, Any], stop: Stop) -> None:
        match message["type"]:
            case "drain":
                stop(at_once=False)
            case "end":
                stop(at_once=True)
            case "workers":
                self._workers = message["workers"]
            case "give_metrics":
                page = self._page().decode() if self._page is not None else ""
                self._send({"type": "metrics", "id": message["id"], "page": page})
            case "pages":
                asked = self._asked.get(message["id"])
                if asked is not None and not asked.done():
                    asked.set_result(message["pages"])

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")


def _end_with_parent() -> None:
    """For a worker whose event loop is stuck: it does not see that its supervisor is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)
