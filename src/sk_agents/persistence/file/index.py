"""Where threads, runs, approvals and grants lie: one tiny sealed file for each.

An index file only says which thread to look at; what is true is in that thread's log. It is
written before the log, so it may dangle and is never missing. It is not synced: a killed process
loses nothing of it, and after the machine itself went down it is made again from the logs.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from sk_agents.engine.models import Entry, EntryKind
from sk_agents.exceptions import StateCorrupt
from sk_agents.persistence.file.lines import read_sealed, seal
from sk_agents.persistence.file.tree import FileTree, Place, name_hash, safe_name

logger = logging.getLogger(__name__)

INDEX = "index"
THREADS = (INDEX, "threads")
LOCKS = (INDEX, "locks")
KINDS: tuple[EntryKind, ...] = ("run", "approval", "grant", "review", "rating")

_BOOT = (INDEX, "boot")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class FileIndex:
    def __init__(self, tree: FileTree) -> None:
        self._tree = tree
        self._folders: dict[str, tuple[str, Place]] = {}

    def folder_of(self, thread_id: str) -> Place | None:
        """The folder the thread was last meant to lie in."""
        found = self._thread_file(safe_name(thread_id))
        if found is None or found[0] != thread_id:
            return None
        return found[1]

    def set_folder(self, thread_id: str, folder: Place) -> None:
        name = safe_name(thread_id)
        self._folders.pop(name, None)
        self._write((*THREADS, name), {"thread_id": thread_id, "folder": folder})

    def forget(self, thread_id: str) -> None:
        """Read this thread's place from the disk the next time."""
        self._folders.pop(safe_name(thread_id), None)

    def threads(self) -> Iterator[tuple[str, Place]]:
        """All threads that were ever about to be made and not deleted since."""
        names = set(self._tree.names(THREADS))
        for gone in self._folders.keys() - names:
            self._folders.pop(gone, None)
        for name in sorted(names):
            try:
                found = self._thread_file(name)
            except StateCorrupt:
                logger.warning("an index file is damaged", extra={"file": name})
                continue
            if found is not None:
                yield found

    def thread_of(self, kind: EntryKind, key: str) -> str | None:
        """The thread in which an entry with this key may be found."""
        fields = self._read(_entry_place(kind, key))
        return None if fields is None else str(fields["thread_id"])

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._write(_entry_place(entry.kind, entry.key), {"thread_id": entry.thread_id})

    def remove(self, thread_id: str, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if self.thread_of(entry.kind, entry.key) == thread_id:
                self._tree.remove(_entry_place(entry.kind, entry.key))
        self.forget(thread_id)
        self._tree.remove((*THREADS, safe_name(thread_id)))

    def remove_damaged(self) -> None:
        """What power loss left of files that were written for logs that may not be there."""
        for folder in (THREADS, *((INDEX, kind) for kind in KINDS)):
            for name in self._tree.names(folder):
                try:
                    self._read((*folder, name))
                except StateCorrupt:
                    logger.warning("an index file was damaged", extra={"file": name})
                    self._tree.remove((*folder, name))
                except OSError as error:  # not ours: it is left for a person to look at
                    logger.warning(
                        "something stands in the index", extra={"file": name, "reason": str(error)}
                    )

    def lock_of(self, thread_id: str) -> Place:
        """The lock under which this thread is made and deleted."""
        return (*LOCKS, name_hash(thread_id)[:2])

    def is_of_this_boot(self) -> bool:
        written = self._tree.read(_BOOT)
        return written is not None and written == _boot_id()

    def set_of_this_boot(self) -> None:
        self._tree.write(_BOOT, _boot_id() or b"unknown", durable=False)

    def _thread_file(self, name: str) -> tuple[str, Place] | None:
        known = self._folders.get(name)
        if known is not None:
            return known
        fields = self._read((*THREADS, name))
        if fields is None:
            return None
        found = str(fields["thread_id"]), tuple(fields["folder"])
        self._folders[name] = found
        return found

    def _write(self, place: Place, fields: dict[str, object]) -> None:
        self._tree.write(place, seal("/".join(place), orjson.dumps(fields)), durable=False)

    def _read(self, place: Place) -> dict[str, str] | None:
        data = self._tree.read(place)
        if data is None:
            return None
        payload = read_sealed(io.BytesIO(data), "/".join(place))
        if payload is None:
            raise StateCorrupt(f"An index file is cut: {'/'.join(place)}")
        fields: dict[str, str] = orjson.loads(payload)
        return fields


def _entry_place(kind: EntryKind, key: str) -> Place:
    return (INDEX, kind, safe_name(key))


def _boot_id() -> bytes | None:
    try:
        return BOOT_ID.read_bytes().strip()
    except OSError:
        return None
