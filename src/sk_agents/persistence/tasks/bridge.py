"""A user's own four-method class as a store.

The truth is what the class keeps: each commit rewrites its task, log included, before it is
acknowledged. Threads that were read or written are mirrored in memory, which is where reads,
listings, leases and the index are served from. So there is one process, a commit's cost grows
with its task, and after a restart a thread is known again when it is next loaded.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Commit, Committed, claimed, same_thread
from sk_agents.engine.models import Durability, Entry, EntryKind, Thread
from sk_agents.engine.ports import Clock
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    LeaseHeld,
    SequenceConflict,
    StateCorrupt,
    StoreError,
    StoreFull,
    ThreadNotFound,
)
from sk_agents.persistence.memory.store import MAX_BYTES, MAX_THREADS, MemoryStore
from sk_agents.persistence.record import encode_events
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.persistence.tasks.log import KEY, TaskLog
from sk_agents.persistence.tasks.user_class import UserTasks
from sk_agents.persistence.thread_log import ThreadLog

logger = logging.getLogger(__name__)

T = TypeVar("T")


class TaskBridgeStore(MemoryStore):
    """What outlives this process is the class's own affair, so no durability is promised."""

    durability = Durability.D0

    def __init__(
        self,
        manager: TaskPersistenceManager,
        *,
        clock: Clock | None = None,
        max_threads: int = MAX_THREADS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        super().__init__(clock=clock, max_threads=max_threads, max_bytes=max_bytes)
        self._tasks = UserTasks(manager)
        self._gates: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
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
            "tasks are kept by a class of the user's: one process only, and each commit rewrites "
            "its whole task",
            extra={"store": str(self)},
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.gather(*self._works, return_exceptions=True)

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

    async def thread(self, thread_id: str) -> Thread:
        await self._reach(thread_id)
        return await super().thread(thread_id)

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        for thread_id in set(thread_ids):
            with suppress(StateCorrupt):
                await self._reach(thread_id)
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
        await self._reach(thread_id)
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
        await self._reach(task.task_id)
        return await super().find(kind, key)

    async def _commit(self, commit: Commit) -> Committed:
        async with self._gate(commit.thread_id):
            log = await self._loaded(commit.thread_id) or TaskLog(commit.thread_id)
            now = self._clock.now()
            body = encode_events(commit.events, now)
            with self._lock:
                replayed = log.replayed(commit)
                if replayed is not None:
                    return deepcopy(replayed)
                admission = log.admit(
                    commit,
                    leased=self._is_leased(log.head),
                    approval=self._approval_of(commit),
                    now=now,
                )
                self._make_room(log, len(body))
            longer = log.grown(commit.commit_id, admission, body)
            await self._write(longer, is_new=log.head is None)
            self._keep(longer, admission.entries)
            return Committed(admission.thread, admission.events)

    async def _claim(self, thread_id: str, owner: str) -> Thread:
        async with self._gate(thread_id):
            log = await self._present(thread_id)
            head = log.known_head()
            with self._lock:
                leased = self._is_leased(head)
            taken = log.with_head(claimed(head, owner, leased=leased, now=self._clock.now()))
            await self._write(taken)
            self._keep(taken)
            return deepcopy(taken.known_head())

    async def _delete(self, thread_id: str, next_seq: int, incarnation: str | None) -> None:
        async with self._gate(thread_id):
            log = await self._present(thread_id)
            head = same_thread(thread_id, log.head, incarnation)
            if head.next_seq != next_seq:
                raise SequenceConflict(thread_id=thread_id, next_seq=head.next_seq)
            with self._lock:
                if self._is_leased(head):
                    raise LeaseHeld(thread_id=thread_id)
            # Out of the mirror first: if the class fails, what it holds is read again.
            self._forget(thread_id)
            await self._tasks.delete(thread_id)
            with self._lock:
                gone = [k for k, entry in self._entries.items() if entry.thread_id == thread_id]
                for key in gone:
                    del self._entries[key]

    async def _write(self, log: TaskLog, *, is_new: bool = False) -> None:
        """Have the class keep this log.

        Raises:
            StoreError, StoreFull: it did not.
            CommitOutcomeUnknown: it failed, and does not say what it holds now.
        """
        write = self._tasks.create if is_new else self._tasks.update
        task = log.task()
        try:
            await write(task)
        except (StoreError, StoreFull) as failure:
            try:
                held = await self._fetch(log.thread_id)
            except (StoreError, StateCorrupt):
                self._forget(log.thread_id)
                raise CommitOutcomeUnknown(thread_id=log.thread_id) from failure
            if held is None or held.document() != log.document():
                raise

    async def _reach(self, thread_id: str) -> None:
        """Have the thread in the mirror, if the class knows it."""
        if thread_id not in self._logs:
            async with self._gate(thread_id):
                await self._loaded(thread_id)

    async def _present(self, thread_id: str) -> TaskLog:
        log = await self._loaded(thread_id)
        if log is None:
            raise ThreadNotFound(thread_id=thread_id)
        return log

    async def _loaded(self, thread_id: str) -> TaskLog | None:
        """The log, from the mirror or the class. The caller holds the thread's gate."""
        mirrored = self._logs.get(thread_id)
        if isinstance(mirrored, TaskLog):
            return mirrored
        log = await self._fetch(thread_id)
        if log is not None:
            with self._lock:
                self._make_room(log, log.size)
            self._keep(log, log.entries())
        return log

    async def _fetch(self, thread_id: str) -> TaskLog | None:
        task = await self._tasks.load(thread_id)
        return TaskLog.of(task) if task is not None else None

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
        """Let go of logs at rest: the class has them. Their rows stay, so none is missing."""
        is_new = log.thread_id not in self._logs
        for other in list(self._logs.values()):
            crowded = is_new and len(self._logs) >= self._max_threads
            if not crowded and self._bytes + size <= self._max_bytes:
                break
            if other is not log and other.known_head().active_run is None:
                self._drop(other.thread_id)
        super()._make_room(log, size)

    def _gate(self, thread_id: str) -> asyncio.Lock:
        return self._gates.setdefault(thread_id, asyncio.Lock())

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Foreign code cannot be stopped half way: a cancelled caller leaves, the work goes on."""
        task = asyncio.ensure_future(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return await asyncio.shield(task)
