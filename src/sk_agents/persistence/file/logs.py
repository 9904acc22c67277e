"""All the logs of a store: where a thread's folder is, how one is made, found and taken away."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from sk_agents.engine.models import Entry, Thread
from sk_agents.exceptions import StateCorrupt, ThreadNotFound
from sk_agents.persistence.file.index import FileIndex
from sk_agents.persistence.file.line import encode_line
from sk_agents.persistence.file.log import (
    LOG,
    FileLog,
    first_bytes,
    lost_events,
    named_thread,
)
from sk_agents.persistence.file.projection import FileProjection
from sk_agents.persistence.file.tree import (
    TEMPORARY,
    FileTree,
    Place,
    hashed_name,
    name_hash,
    new_temporary_name,
    safe_name,
)
from sk_agents.persistence.weighted_cache import WeightedCache

CHATS = "chats"
USERS = "users"
MAX_CACHED_BYTES = 64 * 1024 * 1024


class FileLogs:
    def __init__(
        self, tree: FileTree, index: FileIndex, projection: FileProjection, single_user: str
    ) -> None:
        self._tree = tree
        self._index = index
        self._projection = projection
        self._single_user = single_user
        self.cache: WeightedCache[FileLog] = WeightedCache(MAX_CACHED_BYTES)

    def find(self, thread_id: str) -> FileLog | None:
        try:
            return self.get(thread_id)
        except ThreadNotFound:
            return None

    def get(self, thread_id: str) -> FileLog:
        """The log with all that is durable in it.

        Raises:
            ThreadNotFound: there is none.
            StateCorrupt: it is damaged.
        """
        log = self.cache.get(thread_id)
        if log is not None:
            try:
                log.refresh()
                self.cache.put(thread_id, log, log.weight)
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

    def drop(self, thread_id: str) -> None:
        self.cache.drop(thread_id)
        self._index.forget(thread_id)

    def create(
        self, commit_id: str, thread: Thread, entries: Sequence[Entry], body: bytes
    ) -> Thread | None:
        """Make the thread by its first line, all at once; `None` if it exists already."""
        payload = encode_line(commit_id, 1, thread, entries, body)
        with self._tree.locked(self._index.lock_of(thread.thread_id)):
            for folder in self._folders_for(thread):
                try:
                    owner = named_thread(self._tree, folder)
                except FileNotFoundError:
                    if self._settle(thread.thread_id, folder, entries, payload):
                        return self.get(thread.thread_id).head
                    continue
                if owner == thread.thread_id:
                    self._index.set_folder(thread.thread_id, folder)
                    return None
        raise StateCorrupt("The thread's folder is taken.", thread_id=thread.thread_id)

    def take_away(self, log: FileLog) -> Place:
        """Where the thread's folder now waits to be removed; nobody finds it any more."""
        trash = (TEMPORARY, new_temporary_name())
        self._tree.move_folder(log.folder, trash)
        self._index.remove(log.thread_id, list(log.entries.values()))
        self.drop(log.thread_id)
        return trash

    def folders(self) -> Iterator[Place]:
        """Every folder in which a thread can lie."""
        for name in self._tree.names((CHATS,)):
            yield (CHATS, name)
        for user in self._tree.names((USERS,)):
            for name in self._tree.names((USERS, user, CHATS)):
                yield (USERS, user, CHATS, name)

    def _load(self, thread_id: str, folder: Place | None) -> FileLog:
        if folder is None:
            raise ThreadNotFound(thread_id=thread_id)
        log = FileLog(self._tree, thread_id, folder)
        try:
            log.refresh()
        except StateCorrupt:
            if self._is_of_another(thread_id, folder):
                raise ThreadNotFound(thread_id=thread_id) from None
            raise
        self._repair(log)
        self.cache.put(thread_id, log, log.weight)
        return log

    def _is_of_another(self, thread_id: str, folder: Place) -> bool:
        """Whether a thread that was never made only meant to lie where another lies now."""
        try:
            owner = named_thread(self._tree, folder)
        except FileNotFoundError:
            raise ThreadNotFound(thread_id=thread_id) from None
        return owner not in (None, thread_id) and self._index.folder_of(str(owner)) == folder

    def _repair(self, log: FileLog) -> None:
        """Bring the readable files up to the log after a crash between the two."""
        shown = self._projection.shown_seq(log.folder)
        if shown >= log.next_seq:
            with log.writing():  # no other process deletes or makes the thread now
                shown = self._projection.shown_seq(log.folder)
                if shown >= log.next_seq:
                    raise lost_events(log.thread_id, shown)
        if shown < log.next_seq - 1 and log.head.owner is None:
            with log.writing():
                self._projection.show(log)

    def _folders_for(self, thread: Thread) -> list[Place]:
        base: Place = (CHATS,)
        if thread.user_id != self._single_user:
            base = (USERS, name_hash(thread.user_id), CHATS)
        wanted = safe_name(thread.wire_id or thread.thread_id)
        return [(*base, wanted), (*base, hashed_name(f"{thread.wire_id}\n{thread.thread_id}"))]

    def _settle(
        self, thread_id: str, folder: Place, entries: Sequence[Entry], payload: bytes
    ) -> bool:
        """Write index and log, in this order; False if another thread was quicker to be here."""
        self._index.set_folder(thread_id, folder)
        self._index.add(entries)
        staged = (TEMPORARY, new_temporary_name())
        try:
            with self._tree.folder(staged, create=True) as fd:
                with self._tree.opened((*staged, LOG), os.O_WRONLY | os.O_CREAT) as log:
                    self._tree.write_at(log, first_bytes(thread_id, payload), 0)
                    self._tree.make_durable(log)
                self._tree.make_durable(fd)
            self._tree.move_folder(staged, folder)
        except FileExistsError:
            self._tree.remove_folder(staged)
            return False
        except OSError:
            self._tree.remove_folder(staged)
            raise
        return True
