"""The only judge of how often an effect happened: a process of its own, which nobody kills.

Each call is appended to a file and synced before it is answered. A call that asks to be held is
answered only after a `release`, until the next `hold`. Every line is printed too, for a test to
wait for. The test's process reads what is printed at once, wanted or not: behind a full pipe the
ledger would answer nobody, after some 900 effects.

Usage: python -m tests.chaos.ledger PATH
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.forked_python import PYTHON
from tests.patience import seconds


class LedgerServer:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._released = asyncio.Event()

    async def answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            request = json.loads(await reader.readuntil())
            if request == "release":
                self._released.set()
            elif request == "hold":
                self._released.clear()
            else:
                self._enter(request)
                if request["hold"]:
                    await self._released.wait()
            writer.write(b"ok\n")
            await writer.drain()
        writer.close()

    def _enter(self, request: dict[str, Any]) -> None:
        line = json.dumps({**request, "ns": time.monotonic_ns()}) + "\n"
        os.write(self._file, line.encode())
        os.fsync(self._file)
        sys.stdout.write(line)
        sys.stdout.flush()


async def serve(path: Path) -> None:
    server = await asyncio.start_server(LedgerServer(path).answer, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


async def ask_ledger(port: int, request: Any) -> None:
    """Raises ConnectionError if the ledger went away before it answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        if await reader.readline() != b"ok\n":
            raise ConnectionError("the ledger did not answer")
    finally:
        writer.close()


class Ledger:
    """A running ledger, as its test sees it."""

    def __init__(self, port: int, path: Path) -> None:
        self.port = port
        self._path = path
        self._printed: asyncio.Queue[bytes] = asyncio.Queue()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def count(self, run_id: str) -> int:
        return sum(line["run_id"] == run_id for line in self.lines())

    async def next_effect(self) -> dict[str, Any]:
        async with asyncio.timeout(seconds(20)):
            effect: dict[str, Any] = json.loads(await self._printed.get())
            return effect

    async def read_on(self, printed: StreamReader) -> None:
        while line := await printed.readline():
            self._printed.put_nowait(line)

    async def release(self) -> None:
        await ask_ledger(self.port, "release")

    async def hold(self) -> None:
        await ask_ledger(self.port, "hold")


@asynccontextmanager
async def running_ledger(path: Path) -> AsyncIterator[Ledger]:
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-m", "tests.chaos.ledger", str(path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds(20)):
            port = int(await process.stdout.readline())
        ledger = Ledger(port, path)
        reading = asyncio.create_task(ledger.read_on(process.stdout))
        yield ledger
    finally:
        process.kill()
        await process.wait()
    await reading


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
