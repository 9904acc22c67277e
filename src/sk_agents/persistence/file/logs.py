"""All the logs of a store: where a thread's folder is, how one is made, found and taken away."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

from sk_agents.engine.log.commits import entries_of
from sk_agents.engine.models import EPOCH, Entry, EntryKind, Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.exceptions import SchemaTooNew, StateCorrupt, StoreBusy, TealError, ThreadNotFound
from sk_agents.persistence.cache import ByteBoundedCache
from sk_agents.persistence.encoding import encode_events, read_whole_log
from sk_agents.persistence.file.encryption import FileEncryption
from sk_agents.persistence.file.index import FileIndex
from sk_agents.persistence.file.key_file import KEY, LineCipher, new_thread_key
from sk_agents.persistence.file.lines import encode_line, seal
from sk_agents.persistence.file.log import (
    LOG,
    FileLog,
    Stamp,
    line_place,
    lost_events,
    named_thread,
    stamp_of,
)
from sk_agents.persistence.file.projection import FileProjection
from sk_agents.persistence.file.tree import (
    CHATS,
    TEMPORARY,
    USERS,
    FileTree,
    Place,
    hashed_name,
    name_hash,
    new_temporary_name,
    safe_name,
    thread_folders,
)

logger = logging.getLogger(__name__)

MAX_CACHED_BYTES = 64 * 1024 * 1024


class NewLine(NamedTuple):
    """What `encode_line` takes."""

    commit_id: str
    first_seq: int
    head: Thread
    entries: Sequence[Entry]
    body: bytes


def _sealed_lines(thread: Thread, lines: Sequence[NewLine], cipher: LineCipher | None) -> bytes:
    sealed: list[bytes] = []
    size = 0
    for line in lines:
        place = line_place(thread.thread_id, line.first_seq, size, thread.incarnation)
        payload = encode_line(*line)
        if cipher is not None:
            payload = cipher.seal(place, payload)
        sealed.append(seal(place, payload))
        size += len(sealed[-1])
    return b"".join(sealed)


class FileLogs:
    def __init__(
        self,
        tree: FileTree,
        index: FileIndex,
        projection: FileProjection,
        single_user: str,
        encryption: FileEncryption,
    ) -> None:
        self._tree = tree
        self._encryption = encryption
        self._index = index
        self._projection = projection
        self._single_user = single_user
        self.cache: ByteBoundedCache[FileLog] = ByteBoundedCache(MAX_CACHED_BYTES)

    def find(self, thread_id: str) -> FileLog | None:
        try:
            return self.get(thread_id)
        except ThreadNotFound:
            return None

    def get(self, thread_id: str) -> FileLog:
        """The log with all that is durable in it. Raises ThreadNotFound: there is none;
        StateCorrupt: it is damaged."""
        log = self.cache.get(thread_id)
        if log is not None:
            try:
                log.refresh()
                self.cache.put(thread_id, log, log.memory)
                return log
            except ThreadNotFound:
                self.drop(thread_id)
        folder = self._index.folder_of(thread_id)
        try:
            return self._load(thread_id, folder)
        except ThreadNotFound:
            # Another process may have made it again elsewhere.
            self._index.forget(thread_id)
            if self._index.folder_of(thread_id) == folder:
                raise
        return self._load(thread_id, self._index.folder_of(thread_id))

    def ids(self, after: str, limit: int) -> list[str]:
        """Of the threads that have a log."""
        found = sorted(
            thread_id
            for thread_id, folder in self._index.threads()
            if thread_id > after and self._tree.stat((*folder, LOG)) is not None
        )
        return found[:limit]

    def drop(self, thread_id: str) -> None:
        self.cache.drop(thread_id)
        self._index.forget(thread_id)

    def create(
        self, commit_id: str, thread: Thread, entries: Sequence[Entry], body: bytes
    ) -> Thread | None:
        """Make the thread by its first line, all at once; `None` if it exists already."""
        return self.write_whole(thread, [NewLine(commit_id, 1, thread, entries, body)])

    def restore(self, thread: Thread, records: Sequence[StoredRecord]) -> bool:
        """Make the thread by all its lines at once; False if it exists already. Raises
        StateCorrupt: the records are not its log."""
        lines: list[NewLine] = []
        for stored, record in zip(records, read_whole_log(thread, records), strict=True):
            head = thread._replace(next_seq=record.last_seq + 1)
            entries = tuple(entries_of(thread, record.events))
            lines.append(NewLine(stored.commit_id, stored.first_seq, head, entries, stored.body))
        if not lines:
            lines.append(NewLine(thread.incarnation, 1, thread, (), encode_events((), EPOCH)))
        return self.write_whole(thread, lines) is not None

    def write_whole(self, thread: Thread, lines: Sequence[NewLine]) -> Thread | None:
        """Make a thread that has these lines; `None` if it exists already."""
        with (
            self._tree.locked(self._index.lock_of(thread.thread_id)),
            self._encryption.making_threads(),
        ):
            for folder in self._folders_for(thread):
                try:
                    found = named_thread(self._tree, folder)
                except FileNotFoundError:
                    if self._write_first(thread, folder, lines):
                        return self.get(thread.thread_id).head
                    continue
                if found == thread.thread_id:
                    self._index.set_folder(thread.thread_id, folder)
                    return None
        raise StateCorrupt("The thread's folder is taken.", thread_id=thread.thread_id)

    def take_away(self, log: FileLog) -> Place:
        """Where the thread's folder now waits to be removed; no reader finds it any more."""
        trash = (TEMPORARY, new_temporary_name())
        self._tree.move_folder(log.folder, trash)
        self._tree.blank((*trash, KEY))
        self._index.remove(log.thread_id, list(log.known.entries.values()))
        self.drop(log.thread_id)
        return trash

    def rebuild_index(self) -> None:
        """Make the index again from the logs. The caller holds the store's lock for opening."""
        self._index.remove_damaged()
        for folder in thread_folders(self._tree):
            try:
                thread_id = named_thread(self._tree, folder)
            except (OSError, StateCorrupt):
                continue
            if thread_id is not None:
                with self._tree.locked(self._index.lock_of(thread_id)):
                    self._index_thread(thread_id, folder)
        self._index.set_of_this_boot()

    def _index_thread(self, thread_id: str, folder: Place) -> None:
        if self._index.folder_of(thread_id) not in (None, folder):
            logger.warning("a thread lies in two folders", extra={"thread_id": thread_id})
            return
        self._index.set_folder(thread_id, folder)
        log = FileLog(self._tree, thread_id, folder, self._encryption.codec)
        try:
            log.refresh()
        except (TealError, OSError) as error:
            logger.warning(
                "a log cannot be read", extra={"thread_id": thread_id, "reason": str(error)}
            )
            return
        self._index.add(list(log.known.entries.values()))

    def _load(self, thread_id: str, folder: Place | None) -> FileLog:
        if folder is None:
            raise ThreadNotFound(thread_id=thread_id)
        log = FileLog(self._tree, thread_id, folder, self._encryption.codec)
        try:
            log.refresh()
        except StateCorrupt:
            if self._is_of_another(thread_id, folder):
                raise ThreadNotFound(thread_id=thread_id) from None
            raise
        self._repair(log)
        self.cache.put(thread_id, log, log.memory)
        return log

    def _is_of_another(self, thread_id: str, folder: Place) -> bool:
        """Whether a thread that was never made only meant to lie where another lies now."""
        try:
            found = named_thread(self._tree, folder)
        except FileNotFoundError:
            raise ThreadNotFound(thread_id=thread_id) from None
        return found not in (None, thread_id) and self._index.folder_of(str(found)) == folder

    def _repair(self, log: FileLog) -> None:
        """Bring the readable files up to the log after a crash between the two."""
        shown = self._projection.shown_seq(log.folder)
        if shown >= log.known.next_seq:
            with log.writing():  # no other process deletes or makes the thread now
                shown = self._projection.shown_seq(log.folder)
                if shown >= log.known.next_seq:
                    raise lost_events(log.thread_id, shown)
        if shown < log.known.next_seq - 1 and log.head.owner is None:
            with log.writing():
                self._projection.show(log)

    def _folders_for(self, thread: Thread) -> list[Place]:
        base: Place = (CHATS,)
        if thread.user_id != self._single_user:
            base = (USERS, name_hash(thread.user_id), CHATS)
        wanted = safe_name(thread.wire_id or thread.thread_id)
        return [(*base, wanted), (*base, hashed_name(f"{thread.wire_id}\n{thread.thread_id}"))]

    def _write_first(self, thread: Thread, folder: Place, lines: Sequence[NewLine]) -> bool:
        """Write index and log, in this order; False if another thread was quicker to be here."""
        self._index.set_folder(thread.thread_id, folder)
        for line in lines:
            self._index.add(line.entries)
        staged = (TEMPORARY, new_temporary_name())
        try:
            with self._tree.folder(staged, create=True) as fd:
                cipher: LineCipher | None = None
                if (codec := self._encryption.codec) is not None:
                    key, cipher = new_thread_key(codec, thread)
                    self._write_new((*staged, KEY), key.encoded())
                self._write_new((*staged, LOG), _sealed_lines(thread, lines, cipher))
                self._tree.make_durable(fd)
            self._tree.move_folder(staged, folder)
        except FileExistsError:
            self._tree.remove_folder(staged)
            return False
        except OSError:
            self._tree.remove_folder(staged)
            raise
        return True

    def _write_new(self, place: Place, data: bytes) -> None:
        with self._tree.opened(place, os.O_WRONLY | os.O_CREAT) as fd:
            self._tree.write_at(fd, data, 0)
            self._tree.make_durable(fd)


@dataclass(frozen=True, slots=True)
class ThreadSummary:
    """`waiting` are the open entries other than runs, which never close and are many."""

    stamp: Stamp
    head: Thread | None = None
    waiting: tuple[Entry, ...] = ()


class FileSummaries:
    """What a sweep over all threads needs to know of each, read again only when its log changed."""

    def __init__(self, tree: FileTree, index: FileIndex, logs: FileLogs) -> None:
        self._tree = tree
        self._index = index
        self._logs = logs
        self._known: dict[str, ThreadSummary] = {}

    def heads(self, user_id: str | None = None, *, runnable: bool = False) -> Iterator[Thread]:
        """All heads, or those of one user, or those with work to do."""
        for head, _ in self._all():
            if user_id in (None, head.user_id) and head.runnable >= runnable:
                yield head._replace(metadata=deepcopy(head.metadata))

    def open_entries(self, kind: EntryKind, user_id: str | None = None) -> Iterator[Entry]:
        """Those that are found by their key, too."""
        for head, waiting in self._all():
            if kind == "run" and user_id not in (None, head.user_id):
                continue
            for entry in self._runs(head.thread_id) if kind == "run" else waiting:
                # A review is in the inbox of others than the thread's user.
                if entry.kind == kind and user_id in (None, entry.user_id) and self._leads(entry):
                    yield entry

    def _leads(self, entry: Entry) -> bool:
        return self._index.thread_of(entry.kind, entry.key) == entry.thread_id

    def _runs(self, thread_id: str) -> list[Entry]:
        log = self._log(thread_id)
        entries = [] if log is None else list(log.known.entries.values())
        return [entry for entry in entries if entry.kind == "run" and entry.open]

    def _all(self) -> Iterator[tuple[Thread, tuple[Entry, ...]]]:
        """Of every thread that can be read; the others give their error when they are asked for."""
        threads = dict(self._index.threads())
        for gone in self._known.keys() - threads.keys():
            self._known.pop(gone, None)
        for thread_id, folder in threads.items():
            found = self._tree.stat((*folder, LOG))
            if found is None:
                self._index.forget(thread_id)
                continue
            summary = self._known.get(thread_id)
            if summary is None or summary.stamp != stamp_of(found):
                summary = self._summary(thread_id, stamp_of(found))
                self._known[thread_id] = summary
            if summary.head is not None:
                yield summary.head, summary.waiting

    def _summary(self, thread_id: str, stamp: Stamp) -> ThreadSummary:
        log = self._log(thread_id)
        if log is None:
            return ThreadSummary(stamp)
        entries = list(log.known.entries.values())
        waiting = tuple(entry for entry in entries if entry.open and entry.kind != "run")
        return ThreadSummary(stamp, log.head, waiting)

    def _log(self, thread_id: str) -> FileLog | None:
        try:
            return self._logs.get(thread_id)
        except ThreadNotFound:
            return None
        except (StateCorrupt, SchemaTooNew, StoreBusy) as error:
            logger.warning(
                "a thread was left out of a listing",
                extra={"thread_id": thread_id, "reason": str(error)},
            )
            return None
