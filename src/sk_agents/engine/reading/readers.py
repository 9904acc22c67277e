"""The readers of each run, and what happens when the last one leaves.

A lost client only detaches. A run that is to end with its readers gets a grace, long enough to
reload a page. One that waits for a person is never ended by a disconnect, and one that had no
reader yet, after a decision or a recovery, is not disconnected.

Only the instance that drives a run ends it. Its own readers cost it nothing; other instances mark
in the store, now and then, which runs they have readers of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from sk_agents.engine.commands import CancelRun
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import TERMINAL, RunStatus
from sk_agents.engine.run.drivers import Drivers
from sk_agents.engine.services import Services
from sk_agents.exceptions import Conflict, NotFound, StateCorrupt, TealError

logger = logging.getLogger(__name__)

GRACE_SECONDS = 30.0
PERIOD_SECONDS = 10.0

Cancel = Callable[[CancelRun], Coroutine[None, None, RunStatus]]


class RunKey(NamedTuple):
    thread_id: str
    run_id: str


class Readers:
    """`period` is how often runs with readers here are marked, and marks of others looked for."""

    def __init__(
        self, services: Services, drivers: Drivers, cancel: Cancel, grace: float, period: float
    ) -> None:
        self._services = services
        self._drivers = drivers
        self._cancel = cancel
        self._grace = grace
        self._period = period
        self._counts: dict[RunKey, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Runs whose readers came or left and are not marked yet, with the time on the clock.
        self._unmarked: dict[RunKey, float] = {}
        self._has_unmarked = asyncio.Event()
        self._is_closing = False

    async def __aenter__(self) -> Self:
        self._spawn(self._mark_and_look())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._is_closing = True
        self._has_unmarked.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def joined(self, thread_id: str, run_id: str) -> None:
        key = RunKey(thread_id, run_id)
        self._counts[key] = self._counts.get(key, 0) + 1
        if run_id in self._timers:
            self._timers.pop(run_id).cancel()
        if not self._drivers.is_driven(thread_id):
            self._mark_soon(key)

    def left(self, thread_id: str, run_id: str) -> None:
        key = RunKey(thread_id, run_id)
        self._counts[key] -= 1
        if self._counts[key]:
            return
        del self._counts[key]
        if not self._ends_with_readers(key):
            return
        if self._drivers.is_driven(thread_id):
            self._end_after(self._grace, key)
        else:
            self._mark_soon(key)

    @property
    def ending(self) -> list[str]:
        """The runs that end after their grace, unless a reader comes back."""
        return list(self._timers)

    def _run(self, key: RunKey) -> Run | None:
        known = self._services.threads.known(key.thread_id)
        return known.state.runs.get(key.run_id) if known is not None else None

    def _ends_with_readers(self, key: RunKey) -> bool:
        known = self._services.threads.known(key.thread_id)
        run = known.state.runs.get(key.run_id) if known is not None else None
        if known is None or run is None or run.status is not RunStatus.RUNNING:
            return False
        if run.on_disconnect is not None:
            return run.on_disconnect == "cancel"
        if not self._drivers.has_agent_of(known):
            # The instance that drives the run knows what its agent says.
            return True
        return self._drivers.agent_of(known).on_disconnect == "cancel"

    def _end_after(self, seconds: float, key: RunKey) -> None:
        def end() -> None:
            del self._timers[key.run_id]
            self._spawn(self._end(key))

        self._timers[key.run_id] = asyncio.get_running_loop().call_later(seconds, end)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, key: RunKey) -> None:
        """The run had no reader here for the whole grace: end it, unless it is read elsewhere."""
        try:
            unwatched = await self._services.store.unwatched_for(key.run_id)
            seconds = 0.0 if unwatched is None else self._mark_lifetime - unwatched
            if seconds <= 0:
                await self._stop(key)
                return
        except TealError as error:
            logger.warning("readers not looked for", extra={"error": type(error).__name__})
            seconds = self._period
        if self._is_left_here(key) and not self._is_closing:
            self._end_after(seconds, key)

    @property
    def _mark_lifetime(self) -> float:
        """Once the last mark is so old, its reader is taken to have left for the whole grace."""
        return self._grace + self._period * 1.5

    def _is_left_here(self, key: RunKey) -> bool:
        """Whether it is ours to end, has no reader here and none has just left it."""
        is_read = key in self._counts or key.run_id in self._timers
        return (
            not is_read and self._drivers.is_driven(key.thread_id) and self._ends_with_readers(key)
        )

    async def _stop(self, key: RunKey) -> None:
        known = self._services.threads.known(key.thread_id)
        if known is None or not self._is_left_here(key):
            return
        with suppress(Conflict, NotFound):
            await self._cancel(
                CancelRun(key.thread_id, known.head.user_id, key.run_id, reason="disconnect")
            )

    def _mark_soon(self, key: RunKey) -> None:
        run = self._run(key)
        if run is None or run.phase not in TERMINAL:
            self._unmarked[key] = self._services.clock.monotonic()
            self._has_unmarked.set()

    async def _mark_and_look(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._period
        while not self._is_closing:
            try:
                async with asyncio.timeout_at(due):
                    await self._has_unmarked.wait()
                work = self._mark_changes
            except TimeoutError:
                due = loop.time() + self._period
                work = self._look
            try:
                await work()
            except TealError as error:
                logger.warning("readers not marked", extra={"error": type(error).__name__})

    async def _mark_changes(self) -> None:
        """Mark runs whose readers just came or left."""
        self._has_unmarked.clear()
        unmarked, self._unmarked = self._unmarked, {}
        for thread_id, _ in unmarked:
            # What is known of a thread that is driven elsewhere may be out of date.
            with suppress(NotFound, StateCorrupt):
                await self._services.threads.load(thread_id)
        # A run may have moved on since its reader left: the mark must not be newer than that.
        await self._mark(list(unmarked), since=min(unmarked.values(), default=None))

    async def _mark(self, keys: Sequence[RunKey], since: float | None = None) -> None:
        runs = [
            key.run_id
            for key in keys
            if not self._drivers.is_driven(key.thread_id) and self._ends_with_readers(key)
        ]
        if runs:
            ago = self._services.clock.monotonic() - since if since is not None else 0.0
            await self._services.store.mark_watched(runs, ago=ago)

    async def _look(self) -> None:
        """Mark all runs with readers here, and end those that have none anywhere."""
        await self._mark(list(self._counts))
        for driver in self._drivers.active:
            key = RunKey(driver.thread_id, driver.known.state.active_run or "")
            if not self._is_left_here(key):
                continue
            unwatched = await self._services.store.unwatched_for(key.run_id)
            if unwatched is None or unwatched < self._mark_lifetime:
                continue
            # A reader that left before the run last moved on did not leave the run as it is now.
            if self._services.clock.monotonic() - unwatched >= driver.moved_at:
                await self._stop(key)
