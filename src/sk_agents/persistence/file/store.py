"""Chats as files a person can read: one host, any number of processes.

The truth is one log a thread, `chats/<id>/log.jsonl`: a checksummed line a commit, appended under
a lock and synced before it is acknowledged. Everything beside it is derived. All work on files is
done in worker threads, so that a slow disk never stops the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import orjson

from sk_agents import exceptions as errors
from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.events import Event, RunEnded
from sk_agents.engine.log.commits import (
    Admission,
    Commit,
    Committed,
    Pending,
    admit,
    claimed,
    same_thread,
)
from sk_agents.engine.models import Durability, Entry, EntryKind, Thread
from sk_agents.engine.ports import Clock, Count, StoredRecord, ThreadPage, ThreadQuery
from sk_agents.persistence.codec import PLAIN, PlainCodec
from sk_agents.persistence.encoding import check_replay, encode_events, read_whole_log
from sk_agents.persistence.file.counters import COUNTERS, FileCounters
from sk_agents.persistence.file.disk import FileDisk
from sk_agents.persistence.file.encryption import FileEncryption
from sk_agents.persistence.file.heartbeats import OWNERS, WATCHED, FileHeartbeats
from sk_agents.persistence.file.index import INDEX, KINDS, LOCKS, THREADS, FileIndex
from sk_agents.persistence.file.log import FileLog
from sk_agents.persistence.file.logs import FileLogs, FileSummaries
from sk_agents.persistence.file.projection import FileProjection
from sk_agents.persistence.file.tree import (
    CHATS,
    TEMPORARY,
    USERS,
    FileTree,
    Place,
    new_temporary_name,
    store_error,
)
from sk_agents.persistence.file_systems import durability_with, weaknesses_of
from sk_agents.persistence.listing import (
    longest_untouched,
    mentions,
    open_page,
    overdue_page,
    page_of,
)
from sk_agents.persistence.liveness import check_deletable
from sk_agents.private_files import make_private_folder

if TYPE_CHECKING:
    from sk_agents.persistence.encryption import EncryptingCodec

logger = logging.getLogger(__name__)

T = TypeVar("T")

FORMAT = 1
WORKERS = 8
# A thread can be made or deleted by others between two looks, but hardly that often.
ATTEMPTS = 5
LEFTOVER_SECONDS = 3600
# Held while the index is made again, for which every log is read.
OPENING: Place = (INDEX, "opening")
OPENING_SECONDS = 600.0
_PAGE = 1000
_STORE: Place = ("store.json",)
_FOLDERS: tuple[Place, ...] = (
    (TEMPORARY,),
    (CHATS,),
    (USERS,),
    OWNERS,
    WATCHED,
    COUNTERS,
    THREADS,
    LOCKS,
    *((INDEX, kind) for kind in KINDS),
)


class FileStore:
    durability = Durability.D2
    weaknesses: Sequence[str] = ()

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock | None = None,
        single_user: str = "dummyuser",
        disk: FileDisk | None = None,
        codec: PlainCodec | EncryptingCodec = PLAIN,
    ) -> None:
        self._clock = clock or SystemClock()
        self._tree = FileTree(root, disk)
        self._index = FileIndex(self._tree)
        self._encryption = FileEncryption(self._tree, codec)
        encrypted = self._encryption.codec is not None
        self._projection = FileProjection(self._tree, encrypted=encrypted)
        self._logs = FileLogs(
            self._tree, self._index, self._projection, single_user, self._encryption
        )
        self._heartbeats = FileHeartbeats(self._tree, self._clock)
        self._counters = FileCounters(self._tree, self._clock)
        self._summaries = FileSummaries(self._tree, self._index, self._logs)
        self._workers: ThreadPoolExecutor | None = None
        self._broken: str | None = None
        # How many bytes the largest commit has that found no room since the last ping did.
        self._refused = 0
        self._commits = 0

    def __str__(self) -> str:
        return f"file://{self._tree.root}"

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._checked, self._open)
        except BaseException:
            self._encryption.close()
            raise
        self.weaknesses = weaknesses_of(self._tree.root)
        self.durability = durability_with(self.weaknesses)
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="file-store")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            await asyncio.to_thread(workers.shutdown)
            self._encryption.close()
            self._tree.forget()

    async def ping(self) -> None:
        room = self._refused
        await self._run(lambda: _probe(self._tree, room))
        self._refused = 0

    async def commit(self, commit: Commit) -> Committed:
        now = self._clock.now()
        body = encode_events(commit.events, now)
        try:
            return await self._write(lambda: self._commit(commit, body, now))
        except errors.StoreFull:
            self._refused = max(self._refused, len(body))
            raise

    async def claim(self, thread_id: str, owner: str) -> Thread:
        return await self._write(lambda: self._claim(thread_id, owner))

    def renew(self, owner: str, ttl: float) -> None:
        self._open_workers()
        self._checked(lambda: self._heartbeats.renew(owner, ttl))

    async def retire(self, owner: str) -> None:
        await self._run(lambda: self._heartbeats.retire(owner))

    async def thread(self, thread_id: str) -> Thread:
        return await self._run(lambda: self._logs.get(thread_id).head)

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        def read() -> list[Thread]:
            heads = []
            for thread_id in set(thread_ids):
                with suppress(errors.NotFound, errors.StateCorrupt, OSError):
                    heads.append(self._logs.get(thread_id).head)
            return heads

        return await self._run(read)

    async def events_after(
        self,
        thread_id: str,
        seq: int,
        limit: int = 500,
        *,
        incarnation: str | None = None,
        max_bytes: int | None = None,
    ) -> Sequence[Event]:
        def read(log: FileLog) -> list[Event]:
            same_thread(thread_id, log.head, incarnation)
            return log.events_after(max(seq, 0), limit, max_bytes)

        return await self._run(lambda: self._read_log(thread_id, read))

    async def all_threads(self, *, after: str = "", limit: int = 500) -> Sequence[str]:
        return await self._run(lambda: self._logs.ids(after, limit))

    async def whole_thread(self, thread_id: str) -> tuple[Thread, Sequence[StoredRecord]]:
        def read(log: FileLog) -> tuple[Thread, list[StoredRecord]]:
            head, records = log.head, log.records()
            read_whole_log(head, records)
            return head, records

        return await self._run(lambda: self._read_log(thread_id, read))

    async def restore(self, thread: Thread, records: Sequence[StoredRecord]) -> None:
        if not await self._write(lambda: self._logs.restore(thread, records)):
            raise errors.ThreadExists(thread_id=thread.thread_id)

    async def find(self, kind: EntryKind, key: str) -> Entry | None:
        def read() -> Entry | None:
            thread_id = self._index.thread_of(kind, key)
            log = None if thread_id is None else self._logs.find(thread_id)
            return None if log is None else log.known.entries.get((kind, key))

        return await self._run(read)

    async def open_entries(
        self, kind: EntryKind, user_id: str, *, after: str | None = None, limit: int = 100
    ) -> Sequence[Entry]:
        def read() -> list[Entry]:
            mine = self._summaries.open_entries(kind, user_id)
            return open_page(mine, kind, user_id, after, limit)

        return await self._run(read)

    async def overdue(self, kind: EntryKind, limit: int = 100) -> Sequence[Entry]:
        now = self._clock.now()
        return await self._run(
            lambda: overdue_page(self._summaries.open_entries(kind), kind, now, limit)
        )

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        def read() -> ThreadPage:
            heads = self._summaries.heads(query.user_id)
            return page_of((head for head in heads if self._matches(head, query.text)), query)

        return await self._run(read)

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        def read() -> list[Thread]:
            runnable = self._summaries.heads(runnable=True)
            lost = (head for head in runnable if not self._heartbeats.is_leased(head))
            return longest_untouched(lost, limit)

        return await self._run(read)

    async def mark_watched(self, run_ids: Collection[str], *, ago: float = 0.0) -> None:
        await self._run(lambda: self._heartbeats.mark_watched(run_ids, ago))

    async def unwatched_for(self, run_id: str) -> float | None:
        return await self._run(lambda: self._heartbeats.unwatched_for(run_id))

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        return await self._run(lambda: self._counters.count(additions))

    async def sums(self, prefix: str) -> Mapping[str, int]:
        return await self._run(lambda: self._counters.sums(prefix))

    async def delete(
        self, thread_id: str, *, next_seq: int, incarnation: str | None = None
    ) -> None:
        await self._write(lambda: self._delete(thread_id, next_seq, incarnation))

    def metrics(self) -> Mapping[str, float]:
        return {
            "commits": self._commits,
            "logs_cached": len(self._logs.cache),
            "logs_cached_bytes": self._logs.cache.bytes,
        }

    def _open(self) -> None:
        _open_root(self._tree, self._encryption)
        self._heartbeats.remove_ended()
        # No process serves before this is done, so nothing else changes the index now.
        if not self._index.is_of_this_boot():
            with self._tree.locked(OPENING, seconds=OPENING_SECONDS):
                if not self._index.is_of_this_boot():
                    self._logs.rebuild_index()

    def _commit(self, commit: Commit, body: bytes, now: datetime) -> Committed:
        for _ in range(ATTEMPTS):
            log = self._logs.find(commit.thread_id)
            if log is None:
                committed = self._create(commit, body, now)
            else:
                committed = self._append(log, commit, body, now)
            if committed is not None:
                return committed
        raise errors.StoreBusy("The thread comes and goes too quickly.", thread_id=commit.thread_id)

    def _create(self, commit: Commit, body: bytes, now: datetime) -> Committed | None:
        """None if there is such a log already."""
        admission = admit(commit, None, leased=False, approval=None, now=now, body=body)
        head = self._logs.create(commit.commit_id, admission.thread, admission.entries, body)
        if head is None:
            return None
        self._commits += 1
        return Committed(head, admission.events)

    def _append(self, log: FileLog, commit: Commit, body: bytes, now: datetime) -> Committed | None:
        """None if there is no such log any more."""
        with ExitStack() as stack:
            try:
                fd = stack.enter_context(log.writing())
            except errors.ThreadNotFound:
                self._logs.drop(commit.thread_id)
                return None
            record = log.record(commit.commit_id)
            if record is not None:
                return Committed(log.head, check_replay(record, commit.events))
            head = log.head
            approval = None
            if isinstance(commit.guard, Pending):
                approval = log.known.entries.get(("approval", commit.guard.approval_id))
            leased = commit.needs_lease_state and self._heartbeats.is_leased(head)
            admission = admit(commit, head, leased=leased, approval=approval, now=now, body=body)
            self._index.add(admission.entries)
            log.append(fd, commit.commit_id, admission.thread, admission.entries, body)
            self._commits += 1
            if _rests(admission):
                self._projection.show(log)
            return Committed(log.head, admission.events)

    def _claim(self, thread_id: str, owner: str) -> Thread:
        log = self._logs.get(thread_id)
        with log.writing() as fd:
            now = self._clock.now()
            head = log.head
            head = claimed(head, owner, leased=self._heartbeats.is_leased(head), now=now)
            log.append(fd, None, head, (), encode_events((), now))
            return log.head

    def _read_log(self, thread_id: str, read: Callable[[FileLog], T]) -> T:
        """Read again if the thread was deleted and made again during the read: places differ."""
        for _ in range(ATTEMPTS):
            log = self._logs.get(thread_id)
            stamp = log.known.stamp
            try:
                return read(log)
            except errors.StateCorrupt:
                # Another reader may have brought the log up to date while this one read.
                if log.known.stamp == stamp and log.is_current():
                    raise
        raise errors.StoreBusy("The thread comes and goes too quickly.", thread_id=thread_id)

    def _matches(self, head: Thread, text: str | None) -> bool:
        if text is None:
            return True

        def read(log: FileLog) -> bool:
            return any(
                mentions(head, log.events_after(seq, _PAGE), text)
                for seq in range(0, log.known.next_seq, _PAGE)
            )

        try:
            return self._read_log(head.thread_id, read)
        except errors.ThreadNotFound:
            return False

    def _delete(self, thread_id: str, next_seq: int, incarnation: str | None) -> None:
        with self._tree.locked(self._index.lock_of(thread_id)):
            log = self._logs.get(thread_id)
            with log.writing():
                leased = self._heartbeats.is_leased(log.head)
                check_deletable(thread_id, log.head, next_seq, incarnation, leased=leased)
                trash = self._logs.take_away(log)
        self._tree.remove_folder(trash)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await self._write(work)
        except errors.CommitOutcomeUnknown as error:
            raise errors.StoreBroken(str(error)) from error

    async def _write(self, work: Callable[[], T]) -> T:
        """Work whose outcome is unknown if the disk refuses to sync it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._open_workers(), self._checked, work)

    def _checked(self, work: Callable[[], T]) -> T:
        """Nothing is acknowledged that was written where a restart would not find it, and nothing
        shown that was read there: another process may have written it before it noticed."""
        if self._broken is not None:
            raise errors.StoreBroken(self._broken)
        try:
            done = work()
        except (errors.CommitOutcomeUnknown, errors.StoreBroken) as error:
            self._break(str(error))
            raise
        except errors.NotFound:
            self._check_place()
            raise
        except OSError as error:
            self._check_place()
            raise store_error(error) from error
        self._check_place()
        return done

    def _check_place(self) -> None:
        try:
            self._tree.check()
        except errors.StoreBroken as error:
            self._break(str(error))
            raise

    def _break(self, reason: str) -> None:
        if self._broken is None:
            self._broken = reason
            logger.error("the store is broken", extra={"reason": reason})

    def _open_workers(self) -> ThreadPoolExecutor:
        if self._workers is None:
            raise errors.StoreUnavailable(f"{self._tree.root}: the store is not open")
        return self._workers


def _rests(admission: Admission) -> bool:
    """Whether the thread waits for a person now, or a run has ended: time to show it to people."""
    return admission.thread.owner is None or any(isinstance(e, RunEnded) for e in admission.events)


def _open_root(tree: FileTree, encryption: FileEncryption) -> None:
    """Make what is missing of a store.

    Raises:
        SchemaTooNew: a newer version wrote it; it was not touched.
        ConfigurationError: it is encrypted with other keys, or not at all; it was not touched.
        StoreUnavailable: this is no folder, or no store.
        OSError: it cannot be written.
    """
    try:
        make_private_folder(tree.root)
    except (FileExistsError, NotADirectoryError):
        raise errors.StoreUnavailable(f"The store's place is not a folder: {tree.root}") from None
    has_format(tree)
    encryption.check()
    for place in _FOLDERS:
        with tree.folder(place, create=True):
            pass
    encryption.open()
    with tree.locked(OPENING, seconds=OPENING_SECONDS):
        # Once: a process that has the store open notices that a file of it was replaced.
        if not has_format(tree):
            tree.write(_STORE, orjson.dumps({"format": FORMAT}) + b"\n")
    tree.remember(((), _STORE, (CHATS,), (USERS,)))
    _sweep(tree, now=_probe(tree))


def _probe(tree: FileTree, room: int = 0) -> float:
    """The time by the disk's clock.

    Raises:
        OSError: the store cannot be written now, with `room` bytes at once.
    """
    place = (TEMPORARY, new_temporary_name())
    tree.write(place, b"probe\n" + bytes(room))
    written = tree.stat(place)
    tree.remove(place)
    return written.st_mtime if written is not None else 0.0


def has_format(tree: FileTree) -> bool:
    """Whether this is a store. Raises SchemaTooNew, StoreUnavailable."""
    written = tree.read(_STORE)
    if written is None:
        return False
    try:
        version = int(orjson.loads(written)["format"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        raise errors.StoreUnavailable(f"Not a store's format: {tree.root / _STORE[0]}") from None
    if version > FORMAT:
        raise errors.SchemaTooNew(
            f"{tree.root} has format {version}; this version reads up to {FORMAT}. Not touched."
        )
    return True


def _sweep(tree: FileTree, now: float) -> None:
    """Remove what killed writers left half done, once no writer can still be at it.

    `now` is by the clock that dates the files: this process's own may be a day ahead.
    """
    for name in tree.names((TEMPORARY,)):
        place = (TEMPORARY, name)
        found = tree.stat(place)
        if found is None or found.st_mtime > now - LEFTOVER_SECONDS:
            continue
        try:
            tree.remove(place)
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.EPERM):
                raise
            tree.remove_folder(place)
