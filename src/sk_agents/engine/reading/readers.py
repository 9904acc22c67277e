"""Who is reading a run, and what its last reader's leaving means.

A lost client only detaches. A run that is to end with its readers gets a grace, long enough to
reload a page; one that waits for a person is never ended by a disconnect, and one that nobody has
read yet, after a decision or a recovery, is not disconnected.

Only the instance that drives a run ends it. Its own readers cost it nothing; others mark in the
store, now and then, which runs they have readers of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Self

from sk_agents.engine.commands import CancelRun
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import TERMINAL, RunStatus
from sk_agents.engine.reading.watch import Outlet, Watch
from sk_agents.engine.run.driver import Driver
from sk_agents.engine.run.drivers import Drivers
from sk_agents.engine.services import Services
from sk_agents.exceptions import Conflict, NotFound, StateCorrupt, TealError

logger = logging.getLogger(__name__)

GRACE_SECONDS = 30.0
PERIOD_SECONDS = 10.0

Cancel = Callable[[CancelRun], Coroutine[None, None, RunStatus]]
# A thread and a run of it.
Read = tuple[str, str]


class Readers:
    """`period` is how often other instances are told of readers here, and asked for theirs."""

    def __init__(
        self, services: Services, drivers: Drivers, cancel: Cancel, grace: float, period: float
    ) -> None:
        self._services = services
        self._drivers = drivers
        self._cancel = cancel
        self._grace = grace
        self._period = period
        self._counts: dict[Read, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # When each of them came or left, by the clock.
        self._untold: dict[Read, float] = {}
        self._news = asyncio.Event()
        self._is_closing = False

    async def __aenter__(self) -> Self:
        self._spawn(self._tell_for_ever())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._is_closing = True
        self._news.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def watch(
        self,
        thread_id: str,
        *,
        after: int,
        run_id: str | None,
        incarnation: str | None,
        outlet: Outlet | None,
    ) -> Watch:
        return Watch(
            self._services,
            thread_id,
            after=after,
            run_id=run_id,
            incarnation=incarnation,
            readers=self,
            outlet=outlet,
        )

    def joined(self, thread_id: str, run_id: str) -> None:
        read = thread_id, run_id
        self._counts[read] = self._counts.get(read, 0) + 1
        if run_id in self._timers:
            self._timers.pop(run_id).cancel()
        if not self._drivers.is_driven(thread_id):
            self._tell_soon(read)

    def left(self, thread_id: str, run_id: str) -> None:
        read = thread_id, run_id
        self._counts[read] -= 1
        if self._counts[read]:
            return
        del self._counts[read]
        if not self._ends_with_readers(read):
            return
        if self._drivers.is_driven(thread_id):
            self._arm(read, self._grace)
        else:
            self._tell_soon(read)

    def _run(self, read: Read) -> Run | None:
        known = self._services.threads.known(read[0])
        return known.state.runs.get(read[1]) if known is not None else None

    def _ends_with_readers(self, read: Read) -> bool:
        known, run = self._services.threads.known(read[0]), self._run(read)
        if known is None or run is None or run.status is not RunStatus.RUNNING:
            return False
        if run.on_disconnect is not None:
            return run.on_disconnect == "cancel"
        # What an agent says that we do not have, whoever drives the run knows.
        is_known = self._drivers.has_agent_of(known)
        return not is_known or self._drivers.agent_of(known).on_disconnect == "cancel"

    def _arm(self, read: Read, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[read[1]] = loop.call_later(seconds, self._expire, read)

    def _expire(self, read: Read) -> None:
        del self._timers[read[1]]
        self._spawn(self._end(read))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, read: Read) -> None:
        """Nobody here has read this run for the whole grace."""
        try:
            unwatched = await self._services.store.unwatched_for(read[1])
            seconds = 0.0 if unwatched is None else self._patience - unwatched
            if seconds <= 0:
                await self._stop(read)
                return
        except TealError as error:
            logger.warning("readers not looked for", extra={"error": type(error).__name__})
            seconds = self._period
        if self._is_left_here(read) and not self._is_closing:
            self._arm(read, seconds)

    @property
    def _patience(self) -> float:
        """How old the last mark is once whoever made it is taken to have left for the grace."""
        return self._grace + self._period * 1.5

    def _is_left_here(self, read: Read) -> bool:
        """Whether it is ours to end, and nobody here reads it or has just left it."""
        is_read = read in self._counts or read[1] in self._timers
        return not is_read and self._drivers.is_driven(read[0]) and self._ends_with_readers(read)

    async def _stop(self, read: Read) -> None:
        known = self._services.threads.known(read[0])
        if known is None or not self._is_left_here(read):
            return
        with suppress(Conflict, NotFound):
            await self._cancel(CancelRun(read[0], known.head.user_id, read[1], reason="disconnect"))

    def _tell_soon(self, read: Read) -> None:
        run = self._run(read)
        if run is None or run.phase not in TERMINAL:
            self._untold[read] = self._services.clock.monotonic()
            self._news.set()

    async def _tell_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._period
        while not self._is_closing:
            try:
                async with asyncio.timeout_at(due):
                    await self._news.wait()
                work = self._tell
            except TimeoutError:
                due = loop.time() + self._period
                work = self._look
            try:
                await work()
            except TealError as error:
                logger.warning("readers not told of", extra={"error": type(error).__name__})

    async def _tell(self) -> None:
        """Of those who just came or left, whose threads we may not know as they are now."""
        self._news.clear()
        untold, self._untold = self._untold, {}
        for thread_id, _ in untold:
            with suppress(NotFound, StateCorrupt):
                await self._services.threads.load(thread_id)
        # Somebody may have moved a run on since its reader left: that one left what was before.
        await self._mark(list(untold), since=min(untold.values(), default=None))

    async def _mark(self, reads: Sequence[Read], since: float | None = None) -> None:
        runs = [
            read[1]
            for read in reads
            if not self._drivers.is_driven(read[0]) and self._ends_with_readers(read)
        ]
        if runs:
            ago = self._services.clock.monotonic() - since if since is not None else 0.0
            await self._services.store.mark_watched(runs, ago=ago)

    async def _look(self) -> None:
        """Tell of all who read here, and end what others have left."""
        await self._mark(list(self._counts))
        for driver in self._drivers.active:
            await self._look_at(driver)

    async def _look_at(self, driver: Driver) -> None:
        read = driver.thread_id, driver.known.state.active_run or ""
        if not self._is_left_here(read):
            return
        unwatched = await self._services.store.unwatched_for(read[1])
        if unwatched is None or unwatched < self._patience:
            return
        # Who had left before somebody moved the run on has not left it now.
        if self._services.clock.monotonic() - unwatched >= driver.moved_at:
            await self._stop(read)
