"""A user's own four-method class as a store, for one server or several.

The truth is what the class keeps: each commit loads its task, compares it with what this process
knows, and rewrites it, log included, before it is acknowledged. Threads that were read or written
are mirrored in memory, which is where listings and the index are served from; so after a restart a
thread is known again when it is next loaded. `task_log.py` says how a log lies in a task,
`task_locks.py` how servers keep out of each other's way.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from sk_agents import exceptions as errors
from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Claim, ClaimIfFree, Commit, Committed, Owned, claimed
from sk_agents.engine.models import Durability, Entry, EntryKind, Thread
from sk_agents.engine.ports import Clock
from sk_agents.persistence.encoding import encode_events
from sk_agents.persistence.listing import longest_untouched
from sk_agents.persistence.liveness import check_deletable
from sk_agents.persistence.memory.store import MAX_BYTES, MAX_THREADS, MemoryStore, ThreadLog
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.persistence.tasks.task_locks import SETTLE, TaskLocks
from sk_agents.persistence.tasks.task_log import KEY, TaskLog
from sk_agents.persistence.tasks.user_tasks import UserTasks

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How often a commit is decided again because another server was faster.
RACES = 20


class TaskBridgeStore(MemoryStore):
    """What outlives this process is the class's own affair, so no durability is promised.

    The four methods know no counters: amounts are counted in this process, and gone with it.
    """

    durability = Durability.D0

    def __init__(
        self,
        manager: TaskPersistenceManager,
        *,
        clock: Clock | None = None,
        max_threads: int = MAX_THREADS,
        max_bytes: int = MAX_BYTES,
        settle: float = SETTLE,
        build_another: Callable[[], TaskPersistenceManager] | None = None,
    ) -> None:
        super().__init__(clock=clock, max_threads=max_threads, max_bytes=max_bytes)
        self._tasks = UserTasks(manager, build_another)
        self._locks = TaskLocks(self._tasks, self._clock, settle=settle)
        # Owners that took a lease through this object: only of these are renewals seen here.
        self._owners: set[str] = set()
        # Threads whose owner, at another server, was alive when it was last looked at.
        self._owned_elsewhere: set[str] = set()
        self._thread_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._works: set[asyncio.Task[Any]] = set()

    def __str__(self) -> str:
        return str(self._tasks)

    async def __aenter__(self) -> Self:
        """Prove with a task of our own that the class keeps what it is given.

        Raises:
            ConfigurationError: a task's metadata does not survive, or a deleted task does.
            StoreUnavailable: the class raised.
        """
        await self._tasks.probe(KEY, self._clock.now())
        logger.warning(
            "tasks are kept by a class of the user's: each commit rewrites its whole task, and %s",
            "servers that share it commit under a condition"
            if self._tasks.is_conditional
            else "servers that share it take turns, which a method update_if would spare them",
            extra={"store": str(self)},
        )
        await self._locks.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.gather(*self._works, return_exceptions=True)
        await self._locks.__aexit__(*exc_info)

    async def ping(self) -> None:
        await self._tasks.load(str(uuid.uuid4()))

    async def commit(self, commit: Commit) -> Committed:
        return await self._to_its_end(self._commit(commit))

    async def claim(self, thread_id: str, owner: str) -> Thread:
        return await self._to_its_end(self._claim(thread_id, owner))

    async def delete(
        self, thread_id: str, *, next_seq: int, incarnation: str | None = None
    ) -> None:
        await self._to_its_end(self._delete(thread_id, next_seq, incarnation))

    async def retire(self, owner: str) -> None:
        await super().retire(owner)
        for thread_id, log in list(self._logs.items()):
            if log.head is not None and log.head.owner == owner:
                await self._locks.give_back(thread_id)

    async def thread(self, thread_id: str) -> Thread:
        await self._mirror(thread_id)
        return await super().thread(thread_id)

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        for thread_id in set(thread_ids):
            with suppress(errors.StateCorrupt):
                await self._mirror(thread_id, even_held=True)
        return await super().heads(thread_ids)

    async def events_after(
        self,
        thread_id: str,
        seq: int,
        limit: int = 500,
        *,
        incarnation: str | None = None,
        max_bytes: int | None = None,
    ) -> Sequence[Event]:
        await self._mirror(thread_id)
        return await super().events_after(
            thread_id, seq, limit, incarnation=incarnation, max_bytes=max_bytes
        )

    async def find(self, kind: EntryKind, key: str) -> Entry | None:
        found = await super().find(kind, key)
        if found is not None or kind != "run":
            return found
        task = await self._tasks.load_by_request_id(key)
        if task is None:
            return None
        await self._mirror(task.task_id)
        return await super().find(kind, key)

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        """Of the threads that were loaded here. One that another server may work on is none."""
        lost = []
        for head in await super().orphans(limit):
            with suppress(errors.StateCorrupt, errors.ThreadNotFound):
                head = await self.thread(head.thread_id)
                if head.runnable and not await self._is_worked_on(head):
                    lost.append(head)
        return longest_untouched(lost, limit)

    async def _is_worked_on(self, head: Thread) -> bool:
        if not self._tasks.is_conditional:
            return not await self._locks.is_free(head.thread_id)
        if head.owner is None or head.owner in self._owners:
            return self._is_leased(head)
        return await self._locks.lives(head)

    async def _commit(self, commit: Commit) -> Committed:
        if isinstance(commit.lease, Claim | ClaimIfFree):
            self._owners.add(commit.lease.owner)
        is_new = commit.incarnation is None and commit.thread_id not in self._logs
        async with self._changing(commit.thread_id, commit, is_new=is_new):
            for _ in range(RACES):
                log = await self._current(commit.thread_id) or TaskLog(commit.thread_id)
                if commit.needs_lease_state:
                    await self._look_for_owner(log.head)
                now = self._clock.now()
                body = encode_events(commit.events, now)
                with self._lock:
                    replayed = log.replayed(commit)
                    if replayed is not None:
                        return deepcopy(replayed)
                    admission = self._admit(commit, log, now)
                    self._make_room(log, len(body))
                longer = log.grown(commit.commit_id, admission, body)
                if await self._write(longer, log):
                    self._keep(longer, admission.entries)
                    return Committed(admission.thread, admission.events)
        raise errors.StoreBusy(thread_id=commit.thread_id)

    async def _claim(self, thread_id: str, owner: str) -> Thread:
        self._owners.add(owner)
        async with self._changing(thread_id):
            for _ in range(RACES):
                log = await self._current(thread_id) or TaskLog(thread_id)
                head = log.known_head()
                await self._look_for_owner(head)
                with self._lock:
                    leased = self._is_leased(head)
                taken = log.with_head(claimed(head, owner, leased=leased, now=self._clock.now()))
                if await self._write(taken, log):
                    self._keep(taken)
                    return deepcopy(taken.known_head())
        raise errors.StoreBusy(thread_id=thread_id)

    async def _delete(self, thread_id: str, next_seq: int, incarnation: str | None) -> None:
        async with self._changing(thread_id):
            log = await self._current(thread_id) or TaskLog(thread_id)
            await self._look_for_owner(log.head)
            with self._lock:
                leased = self._is_leased(log.head)
            check_deletable(thread_id, log.head, next_seq, incarnation, leased=leased)
            if self._tasks.is_conditional:
                # From here on no other server's commit is admitted on what it has read.
                head = log.known_head()
                if not await self._write(log.with_head(head._replace(epoch=head.epoch + 1)), log):
                    raise errors.SequenceConflict(thread_id=thread_id)
            # Out of the mirror first: if the class fails, what it holds is read again.
            self._forget(thread_id)
            await self._tasks.call("delete", thread_id)
            with self._lock:
                self._drop_entries(thread_id)

    @asynccontextmanager
    async def _changing(
        self, thread_id: str, commit: Commit | None = None, *, is_new: bool = False
    ) -> AsyncGenerator[None]:
        """While this server alone changes the task. It goes on alone as long as it has the lease.

        Raises:
            LeaseHeld: another server works on it. LeaseLost: the same, to the owner.
        """
        async with self._thread_lock(thread_id):
            if not self._tasks.is_conditional:
                try:
                    await self._locks.take(thread_id, is_new=is_new)
                except errors.LeaseHeld as error:
                    if commit is not None and isinstance(commit.guard, Owned):
                        raise errors.LeaseLost(thread_id=thread_id) from error
                    raise
            try:
                yield
            finally:
                await self._keep_or_give_back(thread_id)

    async def _keep_or_give_back(self, thread_id: str) -> None:
        log = self._logs.get(thread_id)
        head = log.head if log is not None else None
        if head is None or head.owner not in self._owners or not self._is_leased(head):
            await self._locks.give_back(thread_id)
        elif self._tasks.is_conditional:
            with suppress(errors.LeaseHeld):
                await self._locks.take(thread_id)

    async def _look_for_owner(self, head: Thread | None) -> None:
        """Find out whether an owner at another server lives. With the lock here there is none."""
        if head is None or head.owner is None or head.owner in self._owners:
            return
        if self._tasks.is_conditional and await self._locks.lives(head):
            self._owned_elsewhere.add(head.thread_id)
        else:
            self._owned_elsewhere.discard(head.thread_id)

    def _is_leased(self, head: Thread | None) -> bool:
        if head is None or head.owner is None or head.owner in self._owners:
            return super()._is_leased(head)
        return head.thread_id in self._owned_elsewhere

    async def _write(self, log: TaskLog, before: TaskLog) -> bool:
        """Have the class keep this log; whether it still held `before`.

        Raises:
            StoreError, StoreFull: it did not keep it.
            CommitOutcomeUnknown: it failed, and does not say what it holds now.
        """
        task = log.task()
        try:
            if before.head is None:
                await self._tasks.call("create", task)
            elif self._tasks.is_conditional:
                return await self._tasks.update_if(task, before.version)
            elif self._locks.holds(log.thread_id):
                await self._tasks.call("update", task)
            else:
                raise errors.LeaseLost(thread_id=log.thread_id)
        except (errors.StoreError, errors.StoreFull) as failure:
            try:
                held = await self._tasks.load(log.thread_id)
            except (errors.StoreError, errors.StateCorrupt):
                self._forget(log.thread_id)
                raise errors.CommitOutcomeUnknown(thread_id=log.thread_id) from failure
            if held is None or held.version != log.version:
                raise
        return True

    async def _mirror(self, thread_id: str, *, even_held: bool = False) -> None:
        """Have the thread in the mirror as the class has it now, if the class knows it."""
        if even_held or thread_id not in self._logs or not self._locks.holds(thread_id):
            async with self._thread_lock(thread_id):
                await self._current(thread_id)

    async def _current(self, thread_id: str) -> TaskLog | None:
        """The log as the class has it. The caller holds the thread's lock.

        Raises:
            StoreUnavailable: the class returned less than it has kept before.
        """
        mirrored = self._logs.get(thread_id)
        task = await self._tasks.load(thread_id)
        if task is None:
            if mirrored is not None:
                logger.warning("a task was removed", extra={"thread_id": thread_id})
                self._forget(thread_id)
                with self._lock:
                    self._drop_entries(thread_id)
            return None
        if isinstance(mirrored, TaskLog) and task.version == mirrored.version is not None:
            return mirrored
        log = TaskLog.of(task)
        if mirrored is not None and not log.follows(mirrored):
            logger.error("a task lacks what was stored in it", extra={"thread_id": thread_id})
            raise errors.StoreUnavailable(
                f"{self}: load returned a task without what was stored in it before.",
                thread_id=thread_id,
            )
        with self._lock:
            self._make_room(log, log.size)
        self._keep(log, log.entries())
        return log

    def _keep(self, log: TaskLog, entries: Iterable[Entry] = ()) -> None:
        with self._lock:
            # Taken out first: the order of the mirror is that of use.
            self._logs.pop(log.thread_id, None)
            self._logs[log.thread_id] = log
            self._bytes += log.size - self._sizes.get(log.thread_id, 0)
            self._sizes[log.thread_id] = log.size
            self._entries.update({(entry.kind, entry.key): entry for entry in entries})

    def _forget(self, thread_id: str) -> None:
        with self._lock:
            self._drop(thread_id)

    def _drop(self, thread_id: str) -> None:
        self._logs.pop(thread_id, None)
        self._bytes -= self._sizes.pop(thread_id, 0)

    def _make_room(self, log: ThreadLog, size: int) -> None:
        """Drop logs at rest: the class has them. Their entries stay, so none is missing."""
        is_new = log.thread_id not in self._logs
        for other in list(self._logs.values()):
            crowded = is_new and len(self._logs) >= self._max_threads
            if not crowded and self._bytes + size <= self._max_bytes:
                break
            if other is not log and other.known_head().active_run is None:
                self._drop(other.thread_id)
        super()._make_room(log, size)

    def _thread_lock(self, thread_id: str) -> asyncio.Lock:
        return self._thread_locks.setdefault(thread_id, asyncio.Lock())

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Foreign code cannot be stopped half way: a cancelled caller leaves, the work goes on."""
        task = asyncio.ensure_future(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return await asyncio.shield(task)
