"""Taking care of what no driver does: orphaned runs, overdue approvals, leases left behind.

Everything goes through the same conditional commits as ordinary work, so any number of instances
may sweep at once: one of them wins, the others move on. What an instance takes on at once is
bounded and the sweeps of several instances drift apart, so that a fleet that was lost as a whole
does not come back all at once.

A run of an agent that this instance does not have is left, for a while, to one that does; then it
fails with the code `agent_missing`, so that it does not stay open without end. One that is to stop
needs no agent for that. A damaged thread is left as it is until the next start.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from sk_agents.engine.calls import reviews
from sk_agents.engine.calls.decisions import asked_call, has_passed
from sk_agents.engine.events import ModelRestarted, RunStarted
from sk_agents.engine.failpoints import failpoint
from sk_agents.engine.log.commits import Owned, Pending, Release
from sk_agents.engine.models import Entry, Thread
from sk_agents.engine.run import lifecycle
from sk_agents.engine.run.drivers import Drivers, awaits_header
from sk_agents.engine.services import STORE_TROUBLE, BackgroundTask, Services
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import (
    Conflict,
    NotFound,
    StateCorrupt,
    StoreError,
    StoreFull,
    ThreadNotFound,
)

logger = logging.getLogger(__name__)

MAX_RECOVERIES = 3
BATCH = 50
# How many threads are claimed and loaded at the same time.
AT_ONCE = 8
# How many sweeps a run is left to an instance that has its agent.
AGENT_SWEEPS = 20
# How long a run that was given back is left to the instance that holds its header.
HEADER_SECONDS = 10.0

LOST = "The run was lost several times and is not tried again."
BROKEN = "The run could not go on."
NO_AGENT = "The agent of this run does not exist any more."

T = TypeVar("T", str, Entry, Thread)


class Sweeper(BackgroundTask):
    def __init__(self, services: Services, drivers: Drivers, *, interval: float) -> None:
        self._services = services
        self._drivers = drivers
        self._interval = interval
        self._damaged: set[str] = set()

    async def sweep(self) -> None:
        """Look once at everything."""
        store = self._services.store
        await self._each(self._resolve_lease, self._undriven_leases())
        if self._drivers.draining:
            # What is claimed now would be handed over at once.
            return
        await self._each(self._expire, await store.overdue("approval", BATCH))
        orphans = [
            head
            for head in await store.orphans(BATCH + len(self._damaged))
            if head.thread_id not in self._damaged
        ]
        random.shuffle(orphans)
        await self._each(self._recover, orphans)

    async def _work(self) -> None:
        while True:
            try:
                await self.sweep()
            except STORE_TROUBLE as error:
                self._services.look_at(error)
                logger.warning("sweep failed", extra={"error": type(error).__name__})
            await asyncio.sleep(self._interval * random.uniform(0.5, 1.5))

    async def _each(self, work: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
        """One thread's trouble must not keep the others waiting."""
        for start in range(0, len(items), AT_ONCE):
            some = items[start : start + AT_ONCE]
            done = await asyncio.gather(*map(work, some), return_exceptions=True)
            for item, error in zip(some, done, strict=True):
                if error is not None:
                    self._judge(item if isinstance(item, str) else item.thread_id, error)

    def _judge(self, thread_id: str, error: BaseException) -> None:
        """Raises what is not one thread's own trouble."""
        match error:
            case Conflict() | NotFound():
                pass
            case StateCorrupt():
                logger.error("damaged thread left alone", extra={"thread_id": thread_id})
                self._damaged.add(thread_id)
                self._drivers.settled(thread_id)
            case StoreError() | StoreFull():
                raise error
            case _:
                extra = {"thread_id": thread_id}
                logger.error("thread not recovered", extra=extra, exc_info=error)

    async def _recover(self, head: Thread) -> None:
        known = await self._services.threads.load(head.thread_id)
        if not known.head.runnable or known.head.epoch != head.epoch:
            return
        lacks_agent = not self._drivers.has_agent_of(known)
        if lacks_agent and not self._may_end(known, head):
            return
        is_given_back = head.owner is None and awaits_header(known)
        if is_given_back and not self._is_left(head, HEADER_SECONDS):
            return
        if self._drivers.draining:
            return
        claimed = await self._services.claim(known)
        failpoint("claimed")
        try:
            if known.state.active_run is None:
                await self._start_next(known, claimed)
            elif lacks_agent:
                await self._give_up(known, claimed, "agent_missing", NO_AGENT)
            elif claimed.recoveries > MAX_RECOVERIES:
                await self._give_up(known, claimed, "recovery_attempts_exceeded", LOST)
            else:
                await self._mark_restart(known, claimed)
        except BaseException:
            self._drivers.abandoned.add(head.thread_id)
            raise
        self._drivers.drive(known, header_is_lost=is_given_back)

    def _may_end(self, known: KnownThread, head: Thread) -> bool:
        """Whether a run is to be ended here without its agent."""
        run = known.state.runs.get(known.state.active_run or "")
        is_stopping = run is not None and run.is_stopping
        return is_stopping or self._is_left(head, self._interval * AGENT_SWEEPS)

    def _is_left(self, head: Thread, seconds: float) -> bool:
        """Whether the instance that this run was left to has not come for it in time."""
        return self._services.clock.now() - head.updated_at > timedelta(seconds=seconds)

    async def _start_next(self, known: KnownThread, head: Thread) -> None:
        """The owner that should have started the queue's first run was lost."""
        guard = Owned(self._services.owner, head.epoch, known.state.next_seq, exact=True)
        if known.state.queue:
            started = RunStarted(run_id=known.state.queue[0], parent_run=known.state.head_run)
            await self._services.commit(known, guard, started)
        else:
            await self._services.commit(known, guard, lease=Release())

    async def _mark_restart(self, known: KnownThread, head: Thread) -> None:
        """A model call that was open is asked again; readers must know that its text is void."""
        run = known.state.run(known.state.active_run or "")
        if run.unresolved_calls or run.is_stopping:
            return
        number = run.next_round
        restarted = ModelRestarted(
            run_id=run.run_id, round=number, attempt=run.attempt(number) + 1, reason="recovered"
        )
        guard = Owned(self._services.owner, head.epoch, known.state.next_seq)
        await self._services.commit(known, guard, restarted)

    async def _give_up(self, known: KnownThread, head: Thread, code: str, message: str) -> None:
        """End a run that cannot go on: as cancelled, if that was requested."""
        run = known.state.run(known.state.active_run or "")
        if run.is_stopping:
            events = lifecycle.cancelled(run)
        else:
            correlation_id = run.correlation_id or self._services.ids.new()
            events = lifecycle.failed(
                run, code=code, message=message, correlation_id=correlation_id
            )
        guard = Owned(self._services.owner, head.epoch, known.state.next_seq, exact=True)
        await self._services.commit(known, guard, *events, lease=Release())

    async def _expire(self, entry: Entry) -> None:
        known = await self._services.threads.load(entry.thread_id)
        *_, approval = asked_call(known, entry)
        if not has_passed(approval, self._services.clock):
            logger.warning(
                "an approval is due by the wall clock only: it stays open",
                extra={"approval_id": entry.key},
            )
            return
        guard = Pending(entry.key, overdue=True, next_seq=known.state.next_seq)
        if (extended := reviews.extension(approval, self._services.clock)) is not None:
            await self._services.commit(known, guard, extended)
            return
        expired = approval.closed("expired", "timeout")
        lease = self._services.claim_if_free()
        await self._services.commit(known, guard, expired, lease=lease)
        self._drivers.drive(known)

    def _undriven_leases(self) -> list[str]:
        now = self._services.clock.monotonic()
        for thread_id, until in list(self._services.claiming.items()):
            if until < now:
                del self._services.claiming[thread_id]
        return [*self._drivers.abandoned, *self._services.claiming]

    async def _resolve_lease(self, thread_id: str) -> None:
        """A lease that may be ours without a driver: drive, end the run, or give it up."""
        try:
            head = await self._services.store.thread(thread_id)
        except ThreadNotFound:
            # It was deleted, and its lease with it.
            self._drivers.settled(thread_id)
            return
        abandoned = thread_id in self._drivers.abandoned
        if head.owner == self._services.owner and not self._drivers.is_driven(thread_id):
            known = await self._services.threads.load(thread_id)
            if not abandoned:
                self._drivers.drive(known)
            elif thread_id in self._drivers.failed and known.state.active_run is not None:
                await self._give_up(known, head, "internal", BROKEN)
            else:
                guard = Owned(self._services.owner, head.epoch, known.state.next_seq)
                await self._services.commit(known, guard, lease=Release())
        if abandoned:
            self._drivers.settled(thread_id)
