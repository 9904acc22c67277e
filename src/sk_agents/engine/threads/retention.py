"""Threads that are removed because they are old: which, and by whom.

Nothing is removed unless the operator has said for how long a thread of its status is kept. Only a
thread in which nothing runs, waits or is queued is removed, and only as it was looked at: the store
refuses if anything was appended in between. So any number of processes may do it at once, and one
that was interrupted is begun again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sk_agents.engine.models import SERVER_LOG, Thread, ThreadStatus
from sk_agents.engine.ports import Audit, Clock, Copies, Count, ListedStore
from sk_agents.engine.services import STORE_TROUBLE, BackgroundTask, Services
from sk_agents.exceptions import Conflict, CounterFull, NotFound

logger = logging.getLogger(__name__)

# What a rule may name: a thread of another status has something left to do.
PRUNABLE = (
    ThreadStatus.COMPLETED,
    ThreadStatus.FAILED,
    ThreadStatus.CANCELLED,
    ThreadStatus.IDLE,
)
EXPIRED = "expired"
PAGE = 500
AT_ONCE = 8
# One of the instances looks through the store so often, and no longer at a time.
PASS_EVERY_SECONDS = 600.0
# Of it, between two looks at whether a pass is due.
PAUSED_SHARE = (0.1, 0.5)
PASS_SECONDS = 120.0
# Between two pages, so that the store is there for others.
BREATH_SECONDS = 0.1
# A wall clock that runs ahead of the host's other one by more was set.
CLOCK_TOLERANCE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """For how many seconds threads are kept: after their last change, by status, and after the
    time at which they were to expire. What is not named is kept, and what `spared` surfaces keep
    in threads that are no conversations."""

    ages: Mapping[ThreadStatus, float] = field(default_factory=dict)
    expired: float | None = None
    spared: frozenset[str] = frozenset()

    def reason(self, thread: Thread, now: datetime) -> str | None:
        """Why the thread is to be removed: its status, or that it has expired; `None`: it stays."""
        if thread.thread_id.startswith(SERVER_LOG) or thread.surface in self.spared:
            return None
        if thread.status not in PRUNABLE or thread.runnable or thread.queued or thread.active_run:
            return None
        if self.expired is not None and thread.expires_at is not None:
            if now - thread.expires_at >= timedelta(seconds=self.expired):
                return EXPIRED
        age = self.ages.get(thread.status)
        if age is not None and now - thread.updated_at >= timedelta(seconds=age):
            return thread.status
        return None


@dataclass(slots=True)
class Pruned:
    """What was found so far: `due` and `removed` count threads by the reason."""

    seen: int = 0
    due: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)


class Pruner:
    """Removes what the rules name, page by page. `removed` is called with each thread after it was
    removed, and why: the one place that knows of every removal by age."""

    def __init__(
        self,
        store: ListedStore,
        rules: RetentionRules,
        clock: Clock,
        audit: Audit,
        copies: Copies,
        removed: Callable[[Thread, str], None] = lambda thread, reason: None,
    ) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock
        self._audit = audit
        self._copies = copies
        self._removed = removed

    async def page(self, after: str, done: Pruned, *, dry_run: bool = False) -> str | None:
        """Look at the next threads; the id after which to go on, `None` at the end.

        Raises:
            StoreError: the store is away. Go on after the same id.
        """
        ids = await self._store.all_threads(after=after, limit=PAGE)
        now = self._clock.now()
        due = []
        for head in await self._store.heads(ids):
            if (reason := self._rules.reason(head, now)) is not None:
                due.append((head, reason))
                done.due[reason] += 1
        if not dry_run:
            for start in range(0, len(due), AT_ONCE):
                some = due[start : start + AT_ONCE]
                await asyncio.gather(*(self._remove(head, reason, done) for head, reason in some))
        done.seen += sum(not thread_id.startswith(SERVER_LOG) for thread_id in ids)
        return ids[-1] if len(ids) == PAGE else None

    async def _remove(self, head: Thread, reason: str, done: Pruned) -> None:
        await self._audit.deleting(head, who=None, reason=f"by its age, {reason}")
        try:
            async with self._copies.removing(head):
                await self._store.delete(
                    head.thread_id, next_seq=head.next_seq, incarnation=head.incarnation
                )
        except (Conflict, NotFound):
            # It goes on, or another process has removed it.
            return
        done.removed[reason] += 1
        logger.info(
            "thread removed because of its age",
            extra={"thread_id": head.thread_id, "user_id": head.user_id, "reason": reason},
        )
        self._removed(head, reason)


class RetentionKeeper(BackgroundTask):
    """Has one instance at a time look through the store, for a bounded time."""

    def __init__(self, services: Services, store: ListedStore, rules: RetentionRules) -> None:
        self._services = services
        self._pruner = Pruner(
            store, rules, services.clock, services.audit, services.copies, self._forget
        )
        # Where this instance goes on when a pass was too short for the whole store.
        self._after = ""
        self._started = (services.clock.now(), services.clock.monotonic())

    async def sweep(self) -> Pruned | None:
        """One pass; `None` if it is another instance's turn, or the time cannot be trusted.

        Raises:
            StoreError: the store is away.
        """
        clock = self._services.clock
        if self._clock_was_set():
            logger.warning("no thread is removed: the wall clock was set forward by hours")
            return None
        turn = Count("retention", 1, PASS_EVERY_SECONDS, at_most=1)
        try:
            await self._services.store.count([turn])
        except CounterFull:
            return None
        done, until = Pruned(), clock.monotonic() + PASS_SECONDS
        after: str | None = self._after
        while after is not None and clock.monotonic() < until:
            self._after = after
            after = await self._pruner.page(after, done)
            await asyncio.sleep(BREATH_SECONDS if after is not None else 0)
        self._after = after or ""
        if done.removed:
            extra = {"seen": done.seen, "removed": done.removed.total()}
            logger.info("threads removed because of their age", extra=extra)
        return done

    async def _work(self) -> None:
        while True:
            # Instances that were started together drift apart.
            await asyncio.sleep(PASS_EVERY_SECONDS * random.uniform(*PAUSED_SHARE))
            try:
                await self.sweep()
            except STORE_TROUBLE as error:
                self._services.look_at(error)
                logger.warning("retention failed", extra={"error": type(error).__name__})

    def _clock_was_set(self) -> bool:
        """Since this process started. A day that never was must not end a thread's time."""
        clock, (wall, uptime) = self._services.clock, self._started
        ahead = (clock.now() - wall).total_seconds() - (clock.monotonic() - uptime)
        return ahead > CLOCK_TOLERANCE_SECONDS

    def _forget(self, thread: Thread, reason: str) -> None:
        self._services.threads.note_deleted(thread)
        self._services.signals.notify(thread.thread_id)
