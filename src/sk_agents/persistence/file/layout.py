"""Opening a store's folder: its format, its parts, and what a crash may have left behind."""

from __future__ import annotations

import errno
import logging
import time

import orjson

from sk_agents.exceptions import (
    SchemaTooNew,
    StateCorrupt,
    StoreUnavailable,
    TealError,
)
from sk_agents.persistence.file.index import INDEX, KINDS, LOCKS, THREADS, FileIndex
from sk_agents.persistence.file.log import FileLog, named_thread
from sk_agents.persistence.file.logs import CHATS, USERS, FileLogs
from sk_agents.persistence.file.owners import OWNERS
from sk_agents.persistence.file.tree import TEMPORARY, FileTree, Place, new_temporary_name
from sk_agents.persistence.file.watches import WATCHED
from sk_agents.private_files import make_private_folder

logger = logging.getLogger(__name__)

FORMAT = 1
LEFTOVER_SECONDS = 3600
# Held while the index is made anew, for which every log is read.
OPENING: Place = (INDEX, "opening")
OPENING_SECONDS = 600.0

_STORE: Place = ("store.json",)
_FOLDERS: tuple[Place, ...] = (
    (TEMPORARY,),
    (CHATS,),
    (USERS,),
    OWNERS,
    WATCHED,
    THREADS,
    LOCKS,
    *((INDEX, kind) for kind in KINDS),
)


def open_layout(tree: FileTree) -> None:
    """Make what is missing of a store.

    Raises:
        SchemaTooNew: a newer version wrote it; it was not touched.
        StoreUnavailable: this is no folder, or no store.
        OSError: it cannot be written.
    """
    try:
        make_private_folder(tree.root)
    except (FileExistsError, NotADirectoryError):
        raise StoreUnavailable(f"The store's place is not a folder: {tree.root}") from None
    _has_format(tree)
    for place in _FOLDERS:
        with tree.folder(place, create=True):
            pass
    with tree.locked(OPENING, seconds=OPENING_SECONDS):
        # Once: a process that has the store open notices that a file of it was replaced.
        if not _has_format(tree):
            tree.write(_STORE, orjson.dumps({"format": FORMAT}) + b"\n")
    tree.remember(((), _STORE, (CHATS,), (USERS,)))
    probe(tree)
    _sweep(tree)


def probe(tree: FileTree, room: int = 0) -> None:
    """Raises OSError if the store cannot be written now, with `room` bytes at once."""
    place = (TEMPORARY, new_temporary_name())
    tree.write(place, b"probe\n" + bytes(room))
    tree.remove(place)


def rebuild_index(tree: FileTree, index: FileIndex, logs: FileLogs) -> None:
    """Make the index anew from the logs, if the machine may have lost some of it.

    No process serves before this is done, so nothing else changes the index now.
    """
    if index.is_of_this_boot():
        return
    with tree.locked(OPENING, seconds=OPENING_SECONDS):
        if not index.is_of_this_boot():
            index.remove_damaged()
            _index_all(tree, index, logs)
            index.set_of_this_boot()


def _index_all(tree: FileTree, index: FileIndex, logs: FileLogs) -> None:
    for folder in logs.folders():
        try:
            thread_id = named_thread(tree, folder)
        except (OSError, StateCorrupt):
            continue
        if thread_id is not None:
            with tree.locked(index.lock_of(thread_id)):
                _index_thread(tree, index, thread_id, folder)


def _index_thread(tree: FileTree, index: FileIndex, thread_id: str, folder: Place) -> None:
    if index.folder_of(thread_id) not in (None, folder):
        logger.warning("a thread lies in two folders", extra={"thread_id": thread_id})
        return
    index.set_folder(thread_id, folder)
    log = FileLog(tree, thread_id, folder)
    try:
        log.refresh()
    except (TealError, OSError) as error:
        logger.warning("a log cannot be read", extra={"thread_id": thread_id, "reason": str(error)})
        return
    index.add(list(log.entries.values()))


def _has_format(tree: FileTree) -> bool:
    written = tree.read(_STORE)
    if written is None:
        return False
    try:
        version = int(orjson.loads(written)["format"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        raise StoreUnavailable(f"Not a store's format: {tree.root / _STORE[0]}") from None
    if version > FORMAT:
        raise SchemaTooNew(
            f"{tree.root} has format {version}; this version reads up to {FORMAT}. Not touched."
        )
    return True


def _sweep(tree: FileTree) -> None:
    """Remove what writers that were killed left half done, once nobody can be at it any more."""
    oldest = time.time() - LEFTOVER_SECONDS
    for name in tree.names((TEMPORARY,)):
        place = (TEMPORARY, name)
        found = tree.stat(place)
        if found is None or found.st_mtime > oldest:
            continue
        try:
            tree.remove(place)
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.EPERM):
                raise
            tree.remove_folder(place)
