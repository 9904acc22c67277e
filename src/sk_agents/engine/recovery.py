"""Taking care of what nobody drives: orphaned runs, overdue approvals, signals that were lost.

Everything goes through the same conditional commits as ordinary work, so any number of instances
may sweep at once: one of them wins, the others move on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Self

from sk_agents.engine import sealing
from sk_agents.engine.commits import ClaimIfFree, Owned, Pending, Release
from sk_agents.engine.drivers import Drivers
from sk_agents.engine.events import ApprovalDecided, ModelRestarted, RunStarted
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.models import Entry, Thread
from sk_agents.engine.services import Services
from sk_agents.engine.threads import KnownThread
from sk_agents.exceptions import Conflict, NotFound, StateCorrupt, StoreError

logger = logging.getLogger(__name__)

MAX_RECOVERIES = 3
BATCH = 50


class Sweeper:
    def __init__(self, services: Services, drivers: Drivers, *, interval: float) -> None:
        self._services = services
        self._drivers = drivers
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._sweep_for_ever())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def sweep(self) -> None:
        """Look once at everything."""
        await self._release_abandoned()
        await self._look_at_active()
        for entry in await self._services.store.overdue("approval", BATCH):
            await self._quietly(self._expire(entry), entry.thread_id)
        for head in await self._services.store.orphans(BATCH):
            await self._quietly(self._recover(head), head.thread_id)

    async def _sweep_for_ever(self) -> None:
        while True:
            try:
                await self.sweep()
            except StoreError as error:
                logger.warning("sweep failed", extra={"error": type(error).__name__})
            await asyncio.sleep(self._interval)

    async def _quietly(self, work: object, thread_id: str) -> None:
        """One thread's trouble must not keep the others waiting."""
        assert asyncio.iscoroutine(work)
        try:
            await work
        except (Conflict, NotFound):
            pass
        except StateCorrupt:
            logger.error("damaged thread left alone", extra={"thread_id": thread_id})

    async def _recover(self, head: Thread) -> None:
        claimed = await self._services.store.claim(head.thread_id, self._services.owner)
        failpoint("claimed")
        known = await self._services.threads.load(head.thread_id)
        if known.state.active_run is None:
            await self._start_next(known, claimed)
        elif claimed.recoveries > MAX_RECOVERIES:
            await self._give_up(known, claimed)
            return
        else:
            await self._mark_restart(known, claimed)
        self._drivers.drive(known)

    async def _start_next(self, known: KnownThread, head: Thread) -> None:
        """The owner that should have started the queue's first run was lost."""
        guard = Owned(self._services.owner, head.epoch, known.state.next_seq)
        if known.state.queue:
            started = RunStarted(run_id=known.state.queue[0], parent_run=known.state.head_run)
            await self._services.commit(known, guard, started)
        else:
            await self._services.commit(known, guard, lease=Release())

    async def _mark_restart(self, known: KnownThread, head: Thread) -> None:
        """A model call that was open is asked again; readers must know that its text is void."""
        run = known.state.run(known.state.active_run or "")
        if run.unresolved_calls or run.cancel_requested is not None:
            return
        number = 1 + max((call.proposal.round for call in run.calls.values()), default=0)
        restarted = ModelRestarted(
            run_id=run.run_id,
            round=number,
            attempt=run.attempts.get(number, 1) + 1,
            reason="recovered",
        )
        guard = Owned(self._services.owner, head.epoch, known.state.next_seq)
        await self._services.commit(known, guard, restarted)

    async def _give_up(self, known: KnownThread, head: Thread) -> None:
        run = known.state.run(known.state.active_run or "")
        events = sealing.failed(
            run,
            code="recovery_attempts_exceeded",
            message="The run was lost several times and is not tried again.",
            correlation_id=self._services.ids.new(),
            usage=run.usage,
        )
        guard = Owned(self._services.owner, head.epoch, known.state.next_seq)
        await self._services.commit(known, guard, *events, lease=Release())

    async def _expire(self, entry: Entry) -> None:
        known = await self._services.threads.load(entry.thread_id)
        run = known.state.run(entry.run_id)
        call_id = next(
            call.proposal.call_id
            for call in run.calls.values()
            if call.approval and call.approval.request.approval_id == entry.key
        )
        expired = ApprovalDecided(
            run_id=run.run_id,
            approval_id=entry.key,
            call_id=call_id,
            outcome="expired",
            by="timeout",
        )
        lease = ClaimIfFree(self._services.owner)
        guard = Pending(entry.key, overdue=True, next_seq=known.state.next_seq)
        await self._services.commit(known, guard, expired, lease=lease)
        self._drivers.drive(known)

    async def _look_at_active(self) -> None:
        """What others did to the runs we drive, should no signal have told us."""
        for driver in self._drivers.active:
            head = await self._services.store.thread(driver.thread_id)
            if head.next_seq > driver.known.state.next_seq or head.epoch != driver.epoch:
                await self._services.threads.load(driver.thread_id)
                driver.poke()

    async def _release_abandoned(self) -> None:
        """Give up leases of runs we dropped, so that they are recovered like any other."""
        for thread_id in list(self._drivers.abandoned):
            head = await self._services.store.thread(thread_id)
            if head.owner == self._services.owner:
                known = await self._services.threads.load(thread_id)
                guard = Owned(self._services.owner, head.epoch, known.state.next_seq)
                await self._services.commit(known, guard, lease=Release())
            self._drivers.abandoned.discard(thread_id)
