"""Several `teal serve` processes on one store, and a record of what was done to each of them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from tests.chaos.server_process import NotStarted, Server

# A process that is killed while it starts, or that finds the store locked, is started again.
STARTS = 20


@dataclass(slots=True)
class Life:
    """One process from its start to its end, with the times at which it was stopped."""

    pid: int
    instance: int
    stops: list[tuple[float, float]] = field(default_factory=list)
    died: float = inf

    def was_well(self, since: float, until: float) -> bool:
        """Whether it was alive and not stopped all the time between these two moments."""
        was_stopped = any(begin < until and end > since for begin, end in self.stops)
        return self.died > until and not was_stopped


class Member:
    """One instance: its address, its present process, and what is being done to it."""

    def __init__(self, number: int, server: Server) -> None:
        self.number = number
        self.server = server
        self.lives: list[Life] = []
        self.failed_starts: list[str] = []
        self.starting: asyncio.Task[None] | None = None
        self._going_on: asyncio.TimerHandle | None = None

    @property
    def is_starting(self) -> bool:
        return self.starting is not None and not self.starting.done()

    @property
    def is_stopped(self) -> bool:
        return self._going_on is not None

    async def start(self) -> None:
        """Raises NotStarted if it does not come up after many attempts."""
        for _ in range(STARTS):
            try:
                await self.server.start()
            except NotStarted as error:
                self.failed_starts.append(f"instance {self.number}: {error}")
                await self.server.ended()
            else:
                self.lives.append(Life(self.server.pid, self.number))
                return
        raise NotStarted(f"instance {self.number}: {self.failed_starts[-1]}")

    def kill(self) -> None:
        """SIGKILL, also to a stopped process; another is started in its place."""
        self._forget_the_stop()
        self.server.kill()
        self.lives[-1].died = time.time()
        self.starting = asyncio.create_task(self._restart())

    def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so many seconds."""
        self.server.signal(signal.SIGSTOP)
        self.lives[-1].stops.append((time.time(), inf))
        self._going_on = asyncio.get_running_loop().call_later(seconds, self.go_on)

    def go_on(self) -> None:
        if self._going_on is not None:
            self.server.signal(signal.SIGCONT)
            self._forget_the_stop()

    async def _restart(self) -> None:
        await self.server.ended()
        await self.start()

    def _forget_the_stop(self) -> None:
        if self._going_on is not None:
            self._going_on.cancel()
            self._going_on = None
            stops = self.lives[-1].stops
            stops[-1] = (stops[-1][0], time.time())


class Fleet:
    """`held` are the times at which a stopped process held a lock that others write under."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.members = [Member(number, server) for number, server in enumerate(servers, 1)]
        self.held: list[tuple[Life, int]] = []

    async def start(self) -> None:
        # One makes the store, before the others open it.
        for member in self.members:
            await member.start()

    async def heal(self) -> None:
        """Let every instance work again; returns when all of them do."""
        for member in self.members:
            member.go_on()
        for member in self.members:
            if member.starting is not None:
                await member.starting

    async def close(self) -> None:
        for member in self.members:
            member.go_on()
            if member.starting is not None:
                member.starting.cancel()
                with suppress(asyncio.CancelledError, NotStarted, TimeoutError):
                    await member.starting
            await member.server.close()

    def life(self, pid: int) -> Life | None:
        lives = (life for member in self.members for life in member.lives if life.pid == pid)
        return next(lives, None)

    def note_held_locks(self, member: Member) -> None:
        """Called once a process is stopped: what it holds, the others have to wait for."""
        life = member.lives[-1]
        if life.pid in writers_of_locks():
            self.held.append((life, len(life.stops) - 1))

    def store_was_free(self, since: float, until: float) -> bool:
        """Whether no stopped process kept the others from writing between these two moments."""
        stops = [life.stops[number] for life, number in self.held]
        return not any(begin < until and end > since for begin, end in stops)

    @property
    def kills(self) -> int:
        return sum(life.died < inf for member in self.members for life in member.lives)

    @property
    def stops(self) -> int:
        return sum(len(life.stops) for member in self.members for life in member.lives)


def writers_of_locks() -> set[int]:
    """The processes of this host that hold a lock for writing."""
    found = set()
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "->" not in fields and fields[3] == "WRITE":
            found.add(int(fields[4]))
    return found
