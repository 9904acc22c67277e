"""`teal serve` as a real process that can be killed and started again at the same address."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx_sse

from tests.forked_python import PYTHON
from tests.patience import seconds

BOUND = seconds(60.0)
# A machine that starts several at once, beside other tests, needs its time.
START_BOUND = seconds(120.0)


class NotStarted(Exception):
    """The process ended before it was ready; the text is what it printed."""


class Server:
    """One address and one store; at most one process at a time.

    The store is a SQLite file in the folder, unless its URL says otherwise. What the processes log
    goes where the test's own errors go, or to the end of the file `log`.
    """

    def __init__(
        self, folder: Path, agent: Path, *, store: str | None = None, log: Path | None = None
    ) -> None:
        self._folder = folder
        self._agent = agent
        self._store = store or f"sqlite://{folder}/teal.sqlite"
        self._log = log
        self._process: Process | None = None
        self.environment: dict[str, str] = {}
        self.port = 0
        self.client = httpx.AsyncClient(timeout=BOUND)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it is ready. Raises NotStarted."""
        process = await self.launch()
        assert process.stdout is not None
        async with asyncio.timeout(START_BOUND):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if found is None:
            raise NotStarted(line)
        self.port = int(found[1])

    async def launch(self) -> Process:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TA_", "TEAL_"))}
        log = self._log.open("ab") if self._log is not None else None
        try:
            self._process = await asyncio.create_subprocess_exec(
                PYTHON, "-m", "sk_agents", "serve", str(self._agent),
                "--port", str(self.port), "--store", self._store,
                cwd=self._folder, env={**inherited, "HOME": str(self._folder), **self.environment},
                stdin=DEVNULL, stdout=PIPE, stderr=log,
            )  # fmt: skip
        finally:
            if log is not None:
                log.close()
        return self._process

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(BOUND):
            return await self._process.wait()

    async def stop(self) -> None:
        """In good order."""
        self.terminate()
        assert await self.ended() == 0

    async def restart(self) -> None:
        """Once the killed one is gone."""
        assert await self.ended() == -signal.SIGKILL
        await self.start()

    async def close(self) -> None:
        await self.client.aclose()
        if self._process is not None and self._process.returncode is None:
            self.kill()
            await self.ended()

    async def get(self, path: str) -> Any:
        answer = await self.client.get(f"{self.url}{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, **request: Any
    ) -> AsyncIterator[AsyncIterator[httpx_sse.ServerSentEvent]]:
        async with asyncio.timeout(BOUND):
            url = f"{self.url}{path}"
            async with httpx_sse.aconnect_sse(self.client, method, url, **request) as source:
                source.response.raise_for_status()
                yield source.aiter_sse()

    async def say_and_die(self, chat: str, body: bytes) -> bytes:
        """Start an interaction; kill the server on the byte that ends its first frame."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = (
            f"POST /chats/{chat}/interactions HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        seen = b""
        async with asyncio.timeout(BOUND):
            while not (b"interaction_started" in seen and seen.endswith(b"}\n\n")):
                byte = await reader.read(1)
                assert byte, seen
                seen += byte
        self.kill()
        writer.close()
        return seen
