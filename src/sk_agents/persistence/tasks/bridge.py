"""A user's own four-method class as a store.

The truth is what the class keeps: each commit rewrites its task, log included, before it is
acknowledged. Threads that were read or written are mirrored in memory, which is where reads,
listings, leases and the index are served from. So there is one process, a commit's cost grows
with its task, and after a restart a thread is known again when it is next loaded.

The log lies in the task's metadata: sealed records, word for word as they were written.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import uuid
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from pydantic import ValidationError

from sk_agents import exceptions as errors
from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import (
    Absent,
    Admission,
    Commit,
    Committed,
    Unchanged,
    admit,
    claimed,
)
from sk_agents.engine.models import Durability, Entry, EntryKind, StoredModel, Thread
from sk_agents.engine.ports import Clock
from sk_agents.persistence.encoding import (
    decode_head,
    decode_record,
    encode_events,
    encode_head,
    head_checksum,
    record_checksum,
)
from sk_agents.persistence.liveness import check_deletable
from sk_agents.persistence.memory.store import MAX_BYTES, MAX_THREADS, MemoryStore, ThreadLog
from sk_agents.persistence.task_persistence_manager import TaskPersistenceManager
from sk_agents.persistence.tasks.view import creation_events, new_thread, task_of
from sk_agents.ska_types import AgentTask

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Where the log lies in a task's metadata.
KEY = "_log"
FORMAT = 1
IMPORT_ID = "import"
LOOKUP = "load_by_request_id"


class SealedRecord(StoredModel):
    commit_id: str
    first_seq: int
    body: str
    check: int


class LogDocument(StoredModel):
    """What lies under `KEY`. The bytes of a head or record are kept as text."""

    version: int = FORMAT
    head: str
    head_check: int
    records: tuple[SealedRecord, ...] = ()


@dataclass(slots=True)
class TaskLog(ThreadLog):
    """A log with its bytes. Never changed in place: a longer one takes its place once stored."""

    records: tuple[SealedRecord, ...] = ()

    @classmethod
    def of(cls, task: AgentTask) -> Self:
        """The log in this task; a task made by another program becomes the start of one.

        Raises:
            StateCorrupt: the log is damaged, or the task is not the one it belongs to.
            SchemaTooNew: a newer version wrote it.
        """
        if KEY not in task.metadata:
            return cls._imported(task)
        document = _document(task)
        head = decode_head(task.task_id, document.head.encode(), document.head_check)
        log = cls(task.task_id, head, records=document.records)
        for sealed in document.records:
            if sealed.first_seq != len(log.events) + 1:
                raise errors.StateCorrupt("A stored record is missing.", thread_id=task.task_id)
            place = (task.task_id, sealed.first_seq, sealed.commit_id)
            body = sealed.body.encode()
            record = decode_record(*place, body, sealed.check, head.incarnation)
            log.events.extend(record.events)
            log.commits[record.commit_id] = record
        if head.next_seq != len(log.events) + 1:
            raise errors.StateCorrupt("The log ends before its head says.", thread_id=task.task_id)
        if (head.thread_id, head.user_id) != (task.task_id, task.user_id):
            raise errors.StateCorrupt("The task's owner is not its log's.", thread_id=task.task_id)
        return log

    @classmethod
    def _imported(cls, task: AgentTask) -> Self:
        # The same each time this task is read, and another for one made later with its id.
        commit_id = f"{IMPORT_ID}-{task.created_at.isoformat()}"
        commit = Commit(task.task_id, commit_id, Absent(new_thread(task)), creation_events(task))
        now = task.last_updated_at
        admission = admit(commit, None, leased=False, approval=None, now=now)
        return cls(task.task_id).grown(commit_id, admission, encode_events(admission.events, now))

    @property
    def size(self) -> int:
        return sum(len(sealed.body) for sealed in self.records)

    def grown(self, commit_id: str, admission: Admission, body: bytes) -> Self:
        """This log with one more commit, whose events are `body`. Shares nothing with `admission`.
        Raises InvalidInput: what was written cannot be read back, such as lists nested too deep."""
        longer = self.with_head(admission.thread)
        if admission.events:
            first_seq = admission.events[0].seq
            identity = admission.thread.incarnation
            check = record_checksum(self.thread_id, first_seq, commit_id, body, identity)
            try:
                record = decode_record(self.thread_id, first_seq, commit_id, body, check, identity)
            except errors.StateCorrupt as error:
                raise errors.InvalidInput("An event holds a value that cannot be kept.") from error
            longer.events.extend(record.events)
            longer.commits[commit_id] = record
            sealed = SealedRecord(
                commit_id=commit_id, first_seq=first_seq, body=body.decode(), check=check
            )
            longer.records = (*self.records, sealed)
        return longer

    def with_head(self, head: Thread) -> Self:
        """This log with another head, of which it keeps a copy."""
        events, commits = list(self.events), dict(self.commits)
        return type(self)(self.thread_id, deepcopy(head), events, commits, self.records)

    def task(self) -> AgentTask:
        """The task to store: its items and status follow from the log."""
        head = self.known_head()
        task = task_of(head, self.events)
        task.metadata[KEY] = self.document().model_dump()
        return task

    def document(self) -> LogDocument:
        body = encode_head(self.known_head())
        check = head_checksum(self.thread_id, body)
        return LogDocument(head=body.decode(), head_check=check, records=self.records)

    def entries(self) -> Sequence[Entry]:
        """All rows of the index that this log gives, in its order: a later one replaces."""
        head = self.known_head()
        again = Commit(self.thread_id, "", Unchanged(head.next_seq), tuple(self.events))
        return admit(again, head, leased=False, approval=None, now=head.updated_at).entries


def _document(task: AgentTask) -> LogDocument:
    stored: Any = task.metadata[KEY]
    try:
        document = LogDocument.model_validate(stored)
    except ValidationError as error:
        raise errors.StateCorrupt("A task's log cannot be read.", thread_id=task.task_id) from error
    if document.version > FORMAT:
        raise errors.SchemaTooNew(thread_id=task.task_id)
    return document


class UserTasks:
    """Every method raises `StoreUnavailable` for what the class raises, except our own
    `StoreError` and `StoreFull`, and `StateCorrupt` for a task that is not the one asked for."""

    def __init__(self, manager: TaskPersistenceManager) -> None:
        self._manager = manager

    def __str__(self) -> str:
        return f"{type(self._manager).__module__}.{type(self._manager).__name__}"

    async def load(self, task_id: str) -> AgentTask | None:
        task = self._task(await self.call("load", task_id))
        if task is not None and task.task_id != task_id:
            raise errors.StateCorrupt(f"{self}: load returned another task.", thread_id=task_id)
        return task

    async def load_by_request_id(self, request_id: str) -> AgentTask | None:
        """The task of a request, if the class can look it up."""
        if not hasattr(self._manager, LOOKUP):
            return None
        return self._task(await self.call(LOOKUP, request_id))

    async def probe(self, key: str, now: datetime) -> None:
        """Prove that the class keeps a task's ids and metadata, and that it forgets a task. Raises
        ConfigurationError: it does not."""
        task = _probe_task(key, now)
        changed = task.model_copy(update={"metadata": {key: {"list": [1, "\u00e9", None]}}})
        await self.call("create", task)
        try:
            await self.call("update", changed.model_copy(deep=True))
            loaded = await self.load(task.task_id)
        finally:
            await self.call("delete", task.task_id)
        if loaded is None or _kept(loaded) != _kept(changed):
            raise errors.ConfigurationError(
                f"TA_PERSISTENCE_CLASS: {self} does not return a task with the ids and metadata it "
                "was given, so it cannot keep a conversation"
            )
        if await self.load(task.task_id) is not None:
            raise errors.ConfigurationError(f"TA_PERSISTENCE_CLASS: {self} does not delete a task")

    async def call(self, name: str, argument: AgentTask | str) -> Any:
        method = getattr(self._manager, name)
        try:
            if inspect.iscoroutinefunction(method):
                return await method(argument)
            result = await asyncio.to_thread(method, argument)
            return await result if inspect.isawaitable(result) else result
        except (errors.StoreError, errors.StoreFull):
            raise
        except Exception as error:
            # Only the kind of error is shown: its text may hold an address or a password.
            raise errors.StoreUnavailable(
                f"{self}: {name} failed with {type(error).__name__}."
            ) from error

    def _task(self, task: Any) -> AgentTask | None:
        if task is not None and not isinstance(task, AgentTask):
            raise errors.StateCorrupt(f"{self}: returned {type(task).__name__} for a task.")
        return task


def _probe_task(key: str, now: datetime) -> AgentTask:
    return AgentTask(
        task_id=str(uuid.uuid4()),
        session_id=str(uuid.uuid4()),
        user_id="start-up probe",
        items=[],
        created_at=now,
        last_updated_at=now,
        metadata={key: "first"},
    )


def _kept(task: AgentTask) -> tuple[object, ...]:
    return task.task_id, task.session_id, task.user_id, task.metadata


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
    ) -> None:
        super().__init__(clock=clock, max_threads=max_threads, max_bytes=max_bytes)
        self._tasks = UserTasks(manager)
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
        await self._mirror(thread_id)
        return await super().thread(thread_id)

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        for thread_id in set(thread_ids):
            with suppress(errors.StateCorrupt):
                await self._mirror(thread_id)
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

    async def _commit(self, commit: Commit) -> Committed:
        async with self._thread_lock(commit.thread_id):
            log = await self._loaded(commit.thread_id) or TaskLog(commit.thread_id)
            now = self._clock.now()
            body = encode_events(commit.events, now)
            with self._lock:
                replayed = log.replayed(commit)
                if replayed is not None:
                    return deepcopy(replayed)
                admission = self._admit(commit, log, now)
                self._make_room(log, len(body))
            longer = log.grown(commit.commit_id, admission, body)
            await self._write(longer, is_new=log.head is None)
            self._keep(longer, admission.entries)
            return Committed(admission.thread, admission.events)

    async def _claim(self, thread_id: str, owner: str) -> Thread:
        async with self._thread_lock(thread_id):
            log = await self._loaded(thread_id) or TaskLog(thread_id)
            head = log.known_head()
            with self._lock:
                leased = self._is_leased(head)
            taken = log.with_head(claimed(head, owner, leased=leased, now=self._clock.now()))
            await self._write(taken)
            self._keep(taken)
            return deepcopy(taken.known_head())

    async def _delete(self, thread_id: str, next_seq: int, incarnation: str | None) -> None:
        async with self._thread_lock(thread_id):
            log = await self._loaded(thread_id) or TaskLog(thread_id)
            with self._lock:
                leased = self._is_leased(log.head)
            check_deletable(thread_id, log.head, next_seq, incarnation, leased=leased)
            # Out of the mirror first: if the class fails, what it holds is read again.
            self._forget(thread_id)
            await self._tasks.call("delete", thread_id)
            with self._lock:
                self._drop_entries(thread_id)

    async def _write(self, log: TaskLog, *, is_new: bool = False) -> None:
        """Have the class keep this log. Raises StoreError, StoreFull: it did not;
        CommitOutcomeUnknown: it failed, and does not say what it holds now."""
        task = log.task()
        try:
            await self._tasks.call("create" if is_new else "update", task)
        except (errors.StoreError, errors.StoreFull) as failure:
            try:
                held = await self._fetch(log.thread_id)
            except (errors.StoreError, errors.StateCorrupt):
                self._forget(log.thread_id)
                raise errors.CommitOutcomeUnknown(thread_id=log.thread_id) from failure
            if held is None or held.document() != log.document():
                raise

    async def _mirror(self, thread_id: str) -> None:
        """Have the thread in the mirror, if the class knows it."""
        if thread_id not in self._logs:
            async with self._thread_lock(thread_id):
                await self._loaded(thread_id)

    async def _loaded(self, thread_id: str) -> TaskLog | None:
        """The log, from the mirror or the class. The caller holds the thread's lock."""
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
