"""The SQLite file: how it is opened, what is in it, how older ones are brought forward; and the
connections beside the writer's: a pool that reads, one for signs of life.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from sk_agents import exceptions as errors
from sk_agents.engine.ports import Count
from sk_agents.persistence.codec import PLAIN, RecordCodec
from sk_agents.persistence.sqlite import rows
from sk_agents.private_files import close_to_others, make_private_file, make_private_folder

logger = logging.getLogger(__name__)

T = TypeVar("T")

APPLICATION_ID = 0x7EA1A6E7
BUSY_MS = 5_000
RETRY_SECONDS = 0.01
# How long a sign of life waits for a gap between other writers.
HEARTBEAT_BUSY_SECONDS = 4.0
READERS = 4
SUFFIXES = ("", "-wal", "-shm")

# One migration a version, oldest first; a file's `user_version` counts those it has had.
MIGRATIONS = (
    """
    CREATE TABLE thread (
        no INTEGER PRIMARY KEY,
        thread_id TEXT NOT NULL UNIQUE,
        user_id TEXT NOT NULL,
        surface TEXT NOT NULL,
        runnable INTEGER NOT NULL,
        head BLOB NOT NULL,
        checksum INTEGER NOT NULL
    );
    -- Not by time: every commit would then rewrite a page of the index.
    CREATE INDEX thread_of_user ON thread (user_id, surface);
    CREATE INDEX thread_runnable ON thread (runnable) WHERE runnable;

    -- place = thread.no << 32 | first seq: one thread's log lies together, in order.
    CREATE TABLE record (
        place INTEGER PRIMARY KEY,
        commit_id TEXT NOT NULL,
        body BLOB NOT NULL,
        checksum INTEGER NOT NULL
    );

    CREATE TABLE entry (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        thread_no INTEGER NOT NULL,
        user_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        open INTEGER NOT NULL,
        due_at TEXT,
        PRIMARY KEY (kind, key)
    ) WITHOUT ROWID;
    CREATE INDEX entry_of_thread ON entry (thread_no);
    CREATE INDEX entry_open ON entry (kind, user_id, key) WHERE open;
    CREATE INDEX entry_due ON entry (kind, due_at) WHERE open AND due_at IS NOT NULL;

    CREATE TABLE owner (
        owner TEXT PRIMARY KEY,
        alive_until REAL NOT NULL
    ) WITHOUT ROWID;
    """,
    # Records in the order they were written: commits of many threads then share a page, where
    # each would rewrite a page of its own if a thread's log lay together. `place` is as before.
    """
    ALTER TABLE record RENAME TO record_by_place;
    CREATE TABLE record (
        no INTEGER PRIMARY KEY,
        place INTEGER NOT NULL UNIQUE,
        commit_id TEXT NOT NULL,
        body BLOB NOT NULL,
        checksum INTEGER NOT NULL
    );
    INSERT INTO record (place, commit_id, body, checksum)
        SELECT place, commit_id, body, checksum FROM record_by_place ORDER BY place;
    DROP TABLE record_by_place;
    """,
    # Runs that are read elsewhere than where they are driven.
    """
    CREATE TABLE watched (
        run_id TEXT PRIMARY KEY,
        at REAL NOT NULL
    ) WITHOUT ROWID;
    """,
    # Amounts that all instances count together.
    """
    CREATE TABLE counter (
        key TEXT PRIMARY KEY,
        sum INTEGER NOT NULL,
        forget_at REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX counter_forget_at ON counter (forget_at);
    """,
    # What an encrypted store says of itself; see `RecordCodec.marker`. One row, or none.
    """
    CREATE TABLE encryption (
        no INTEGER PRIMARY KEY,
        marker BLOB NOT NULL
    );
    """,
)
# The migrations before it made no table `encryption`.
_ENCRYPTION_VERSION = 5
_NO_ROOM = (errno.EFBIG, errno.EDQUOT, errno.ENOSPC)
_ERRORS: tuple[tuple[type[apsw.Error], type[errors.TealError], str], ...] = (
    (apsw.BusyError, errors.StoreBusy, "the database is locked by another process"),
    (apsw.LockedError, errors.StoreBusy, "the database is locked by another process"),
    (apsw.ReadOnlyError, errors.StoreReadOnly, "the database cannot be written"),
    (apsw.FullError, errors.StoreFull, "the disk is full; nothing was written"),
    (apsw.CantOpenError, errors.StoreUnavailable, "the database cannot be opened"),
    (apsw.NotADBError, errors.StoreUnavailable, "the file is not a database"),
    (apsw.CorruptError, errors.StoreUnavailable, "the database file is damaged"),
    (apsw.IOError, errors.StoreUnavailable, "the disk failed; nothing was written"),
)


def open_for_writing(path: Path, codec: RecordCodec = PLAIN) -> apsw.Connection:
    """A connection to the file, made and migrated if need be. Raises StoreUnavailable,
    StoreReadOnly, StoreBusy, SchemaTooNew, and what `RecordCodec.marker` does: and nothing was
    changed."""
    _make_file(path)
    with translated(path):
        connection = apsw.Connection(str(path))
        try:
            connection.set_busy_timeout(BUSY_MS)
            check_identity(connection, path)
            _check_encryption(connection, codec)
            # Only now: what is no store of ours stays as it is.
            for suffix in SUFFIXES:
                close_to_others(path.with_name(path.name + suffix))
            _use_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
            if codec is not PLAIN:
                # The key of a deleted thread must not be left in a free part of a page.
                connection.execute("PRAGMA secure_delete = ON")
            connection.wal_autocheckpoint(0)
            migrate(connection)
            _mark(connection, codec)
            _empty_wal(connection)
        except BaseException:
            connection.close()
            raise
    logger.info("sqlite store opened", extra={"sqlite_version": apsw.sqlite_lib_version()})
    return connection


def open_for_reading(path: Path) -> apsw.Connection:
    with translated(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(BUSY_MS)
        leave_wal_alone(connection)
        return connection


def leave_wal_alone(connection: apsw.Connection) -> None:
    """This connection moves nothing out of the WAL, neither after a commit nor on closing."""
    connection.wal_autocheckpoint(0)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours, naming the file."""
    try:
        yield
    except apsw.Error as error:
        raise store_error(error, path) from error


def store_error(error: apsw.Error, path: Path, system_errno: int = 0) -> errors.TealError:
    """`system_errno` shows whether a limit was reached or the disk is broken: SQLite calls both an
    I/O error."""
    if is_failed_sync(error):
        return errors.StoreBroken(f"{path}: the disk refused to sync; restart to read what it kept")
    if isinstance(error, apsw.IOError) and system_errno in _NO_ROOM:
        error = apsw.FullError(os.strerror(system_errno))
    for kind, ours, text in _ERRORS:
        if isinstance(error, kind):
            return ours(f"{path}: {text} ({error})")
    return errors.StoreUnavailable(f"{path}: {error}")


def is_failed_sync(error: Exception) -> bool:
    """After this, what the operating system holds is not what the disk holds."""
    failed = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)
    return getattr(error, "extendedresult", 0) in failed


def outcome_unknown(path: Path) -> errors.TealError:
    return errors.CommitOutcomeUnknown(
        f"{path}: the disk refused to sync; restart to read what it kept."
    )


def _make_file(path: Path) -> None:
    """SQLite gives the WAL and its index the mode of the database."""
    try:
        make_private_folder(path.parent)
    except OSError as error:
        raise errors.StoreUnavailable(
            f"{path.parent}: the folder cannot be made ({error})"
        ) from error
    try:
        make_private_file(path)
    except OSError as error:
        raise errors.StoreUnavailable(f"{path}: the database cannot be opened ({error})") from error


def _empty_wal(connection: apsw.Connection) -> None:
    """Copy what an earlier process left in the WAL into the database, and sync that.

    If a disk refused to sync the WAL, the operating system may still show frames that the disk
    does not have. A commit behind them would be lost with them.
    """
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except (apsw.BusyError, apsw.LockedError, apsw.FullError):
        logger.info("the WAL was not emptied", extra={"file": connection.filename})


def _use_wal(connection: apsw.Connection) -> None:
    """SQLite does not wait by itself for another process that switches the file to WAL."""
    give_up = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > give_up:
                raise
            time.sleep(RETRY_SECONDS)


def check_identity(connection: apsw.Connection, path: Path) -> None:
    if connection.readonly("main"):
        raise errors.StoreReadOnly(f"{path}: the database cannot be written")
    # First: another process that fills an empty file sets its id in the same transaction.
    is_empty = not connection.pragma("schema_version")
    application = connection.pragma("application_id")
    version = connection.pragma("user_version")
    if application != APPLICATION_ID and not is_empty:
        raise errors.StoreUnavailable(f"{path}: this is another program's database")
    if version > len(MIGRATIONS):
        raise errors.SchemaTooNew(
            f"{path}: written by a newer version (schema {version}, this one knows "
            f"{len(MIGRATIONS)}); it was not touched."
        )


def _check_encryption(connection: apsw.Connection, codec: RecordCodec) -> None:
    """Before anything is changed, also what closing a connection changes."""
    version = connection.pragma("user_version")
    if version == 0:
        return
    try:
        found = rows.marker(connection) if version >= _ENCRYPTION_VERSION else None
        codec.marker(found, is_empty=rows.is_empty(connection))
    except errors.TealError:
        leave_wal_alone(connection)
        raise


def _mark(connection: apsw.Connection, codec: RecordCodec) -> None:
    """Have the store say what it must. In most cases it does."""
    found = rows.marker(connection)
    if codec.marker(found, is_empty=rows.is_empty(connection)) == found:
        return
    with immediate(connection):
        rows.mark(connection, codec)


def migrate(connection: apsw.Connection) -> None:
    if connection.pragma("user_version") == len(MIGRATIONS):
        return
    with immediate(connection):
        # Read again under the lock: another process may have migrated it.
        for version in range(connection.pragma("user_version"), len(MIGRATIONS)):
            connection.execute(MIGRATIONS[version])
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(MIGRATIONS))


@contextmanager
def immediate(connection: apsw.Connection) -> Iterator[None]:
    """A transaction in which no other connection writes."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


class SqliteFiles:
    """The files behind an open database, and whether its path still leads to them.

    A file that is removed or replaced under a running server can be written on for hours; all of it
    is gone when the last connection closes. SQLite itself notices none of this in WAL mode.

    Made while a connection in WAL mode is open: until it closes, SQLite replaces no file.
    """

    def __init__(self, path: Path) -> None:
        """Raises StoreBroken: a file was removed or replaced since the connection was opened."""
        self._found = {f"{path}{suffix}": _identity(f"{path}{suffix}") for suffix in SUFFIXES}
        opened = _open_files()
        for name, found in self._found.items():
            if found is None or (opened and found not in opened):
                raise _replaced(name)

    def check(self) -> None:
        """Raises StoreBroken, naming the file that is not the one this store has open."""
        for name, found in self._found.items():
            if _identity(name) != found:
                raise _replaced(name)


class SqliteReaders:
    """Threads that read, each with a connection of its own, so that no read stalls the loop."""

    def __init__(self, path: Path, files: SqliteFiles) -> None:
        self._path = path
        self._files = files
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._executor = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-reader")
        self._closed = False

    async def run(self, read: Callable[[apsw.Connection], T]) -> T:
        """All statements of `read` see the database at one moment.

        Raises:
            StoreBroken: the files were removed or replaced. Another process may have written to
                them before it noticed, so what was read may be gone after a restart.
        """
        if self._closed:
            raise errors.StoreUnavailable(f"{self._path}: the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._read, read)

    def close(self) -> None:
        """Finish the reads under way, then close. Blocks."""
        self._closed = True
        self._executor.shutdown()
        for connection in self._opened:
            connection.close()

    def _read(self, read: Callable[[apsw.Connection], T]) -> T:
        with translated(self._path):
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                result = read(connection)
            finally:
                connection.execute("COMMIT")
            self._files.check()
            return result

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            self._files.check()
            connection = self._local.connection = open_for_reading(self._path)
            self._opened.append(connection)
            self._files.check()
        return connection


class HeartbeatConnection:
    """Signs of life, written past the event loop: that an owner lives, that a run is read; and
    counters.

    They need not survive a lost machine, so their commits do not wait for the disk. They lie in one
    WAL with commits that must survive it, hence:

    - `synchronous=NORMAL`, not `OFF`: a connection that begins the WAL again after a checkpoint
      must sync its new header before the first frame. Else a disk may keep a frame and lose the
      header, and the old header makes old frames valid again. Every later commit's sync covers the
      frames written here.
    - No checkpoint, neither after a commit nor on closing: the group writer makes them all.

    It is opened when it is first used. `wal_grew` is called after each commit with the number of
    frames in the WAL.
    """

    def __init__(self, path: Path, files: SqliteFiles, wal_grew: Callable[[int], None]) -> None:
        self._path = path
        self._files = files
        self._wal_grew = wal_grew
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None

    def renew(self, owner: str, alive_until: float) -> None:
        """Raises StoreBusy if no gap between other writers was found in time; StoreBroken."""
        self._run(lambda db: rows.renew(db, owner, alive_until))

    def mark_watched(self, run_ids: Collection[str], now: float, ago: float) -> None:
        """Raises as `renew` does."""
        self._run(lambda db: rows.mark_watched(db, run_ids, now, ago))

    def count(
        self, steps: Sequence[Sequence[Count]], now: float
    ) -> list[list[int] | errors.CounterFull]:
        """Raises as `renew` does."""
        return self._run(lambda db: rows.count(db, steps, now))

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, work: Callable[[apsw.Connection], T]) -> T:
        with self._lock:
            try:
                done = work(self._open())
            except apsw.Error as error:
                system_errno = self._connection.system_errno if self._connection else 0
                raise store_error(error, self._path, system_errno) from error
        self._files.check()
        return done

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            self._files.check()
            connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            self._set_up(connection)
            connection.set_busy_handler(_BusyHandler())
            self._connection = connection
        return self._connection

    def _set_up(self, connection: apsw.Connection) -> None:
        connection.execute("PRAGMA synchronous = NORMAL")
        leave_wal_alone(connection)
        connection.set_wal_hook(self._committed)

    def _committed(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        self._wal_grew(frames)
        return apsw.SQLITE_OK


class _BusyHandler:
    """SQLite's own handler sleeps ever longer and would miss the short gaps of a busy writer."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._since = now
        time.sleep(random.uniform(0.0001, 0.0009))
        return now - self._since < HEARTBEAT_BUSY_SECONDS


def _replaced(name: str) -> errors.StoreBroken:
    return errors.StoreBroken(
        f"{name} was removed or replaced: what is written now is lost; restart"
    )


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open_files() -> set[tuple[int, int] | None]:
    """All files that this process has open, by identity; empty where the system does not say."""
    folder = "/proc/self/fd"
    try:
        return {_identity(f"{folder}/{name}") for name in os.listdir(folder)}
    except OSError:
        return set()
