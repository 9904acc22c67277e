"""Who is reading a run, and what its last reader's leaving means.

A lost client only detaches. A run that is to end with its readers gets a grace, long enough to
reload a page; one that waits for a person is never ended by a disconnect, and one that nobody has
read yet, after a decision or a recovery, is not disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence

from sk_agents.engine.commands import CancelRun
from sk_agents.engine.drivers import Drivers
from sk_agents.engine.models import RunStatus
from sk_agents.engine.services import Services
from sk_agents.engine.watch import Item, watch_thread
from sk_agents.exceptions import Conflict, NotFound

GRACE_SECONDS = 30.0

Cancel = Callable[[CancelRun], Coroutine[None, None, RunStatus]]


class Readers:
    def __init__(self, services: Services, drivers: Drivers, cancel: Cancel, grace: float) -> None:
        self._services = services
        self._drivers = drivers
        self._cancel = cancel
        self._grace = grace
        self._counts: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(
        self, thread_id: str, *, after: int, run_id: str | None
    ) -> AsyncGenerator[Sequence[Item], None]:
        return watch_thread(self._services, thread_id, after=after, run_id=run_id, readers=self)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def joined(self, thread_id: str, run_id: str) -> None:
        self._counts[run_id] = self._counts.get(run_id, 0) + 1
        if run_id in self._timers:
            self._timers.pop(run_id).cancel()

    def left(self, thread_id: str, run_id: str) -> None:
        self._counts[run_id] -= 1
        if self._counts[run_id]:
            return
        del self._counts[run_id]
        if self._ends_with_readers(thread_id, run_id):
            loop = asyncio.get_running_loop()
            self._timers[run_id] = loop.call_later(self._grace, self._expire, thread_id, run_id)

    def _ends_with_readers(self, thread_id: str, run_id: str) -> bool:
        known = self._services.threads.known(thread_id)
        run = known.state.runs.get(run_id) if known is not None else None
        if known is None or run is None or run.status is not RunStatus.RUNNING:
            return False
        return (run.on_disconnect or self._drivers.agent_of(known).on_disconnect) == "cancel"

    def _expire(self, thread_id: str, run_id: str) -> None:
        del self._timers[run_id]
        task = asyncio.get_running_loop().create_task(self._end(thread_id, run_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, thread_id: str, run_id: str) -> None:
        """Nobody has read this run for the whole grace."""
        if not self._ends_with_readers(thread_id, run_id):
            return
        try:
            known = await self._services.threads.load(thread_id)
            user_id = known.head.user_id
            await self._cancel(CancelRun(thread_id, user_id, run_id, reason="disconnect"))
        except (Conflict, NotFound):
            return
