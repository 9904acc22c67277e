"""The SQLite file: how it is opened, what is in it, how older ones are brought forward."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    SchemaTooNew,
    StoreBroken,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TealError,
)
from sk_agents.private_files import close_to_others, make_private_file, make_private_folder

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x7EA1A6E7
BUSY_MS = 5_000
RETRY_SECONDS = 0.01

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
)


def open_for_writing(path: Path) -> apsw.Connection:
    """A connection to the file, made and migrated if need be.

    Raises:
        StoreUnavailable, StoreReadOnly, StoreBusy, SchemaTooNew: and nothing was changed.
    """
    _make_file(path)
    with translated(path):
        connection = apsw.Connection(str(path))
        try:
            connection.set_busy_timeout(BUSY_MS)
            _check_identity(connection, path)
            _use_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.wal_autocheckpoint(0)
            _migrate(connection)
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


def store_error(error: apsw.Error, path: Path, system_errno: int = 0) -> TealError:
    """`system_errno` tells a limit from a broken disk: SQLite calls both an I/O error."""
    if is_failed_sync(error):
        return StoreBroken(f"{path}: the disk refused to sync; restart to read what it kept")
    if isinstance(error, apsw.IOError) and system_errno in _NO_ROOM:
        error = apsw.FullError(os.strerror(system_errno))
    for kind, ours, text in _ERRORS:
        if isinstance(error, kind):
            return ours(f"{path}: {text} ({error})")
    return StoreUnavailable(f"{path}: {error}")


def is_failed_sync(error: Exception) -> bool:
    """After this, what the operating system holds is not what the disk holds."""
    return getattr(error, "extendedresult", 0) in (
        apsw.SQLITE_IOERR_FSYNC,
        apsw.SQLITE_IOERR_DIR_FSYNC,
    )


def outcome_unknown(path: Path) -> StoreError:
    return CommitOutcomeUnknown(f"{path}: the disk refused to sync; restart to read what it kept.")


_NO_ROOM = (errno.EFBIG, errno.EDQUOT, errno.ENOSPC)
_ERRORS: tuple[tuple[type[apsw.Error], type[TealError], str], ...] = (
    (apsw.BusyError, StoreBusy, "the database is locked by another process"),
    (apsw.LockedError, StoreBusy, "the database is locked by another process"),
    (apsw.ReadOnlyError, StoreReadOnly, "the database cannot be written"),
    (apsw.FullError, StoreFull, "the disk is full; nothing was written"),
    (apsw.CantOpenError, StoreUnavailable, "the database cannot be opened"),
    (apsw.NotADBError, StoreUnavailable, "the file is not a database"),
    (apsw.CorruptError, StoreUnavailable, "the database file is damaged"),
    (apsw.IOError, StoreUnavailable, "the disk failed; nothing was written"),
)


def _make_file(path: Path) -> None:
    """SQLite gives the WAL and its index the mode of the database."""
    try:
        make_private_folder(path.parent)
    except OSError as error:
        raise StoreUnavailable(f"{path.parent}: the folder cannot be made ({error})") from error
    try:
        make_private_file(path)
    except OSError as error:
        raise StoreUnavailable(f"{path}: the database cannot be opened ({error})") from error
    for suffix in ("-wal", "-shm"):
        close_to_others(path.with_name(path.name + suffix))


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
    """Whoever makes the file does it; SQLite does not wait by itself for another to be done."""
    give_up = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > give_up:
                raise
            time.sleep(RETRY_SECONDS)


def _check_identity(connection: apsw.Connection, path: Path) -> None:
    if connection.readonly("main"):
        raise StoreReadOnly(f"{path}: the database cannot be written")
    # First: who else fills an empty file says whose it is in the same transaction.
    is_empty = not connection.pragma("schema_version")
    application = connection.pragma("application_id")
    version = connection.pragma("user_version")
    if application != APPLICATION_ID and not is_empty:
        raise StoreUnavailable(f"{path}: this is another program's database")
    if version > len(MIGRATIONS):
        raise SchemaTooNew(
            f"{path}: written by a newer version (schema {version}, this one knows "
            f"{len(MIGRATIONS)}); it was not touched."
        )


def _migrate(connection: apsw.Connection) -> None:
    if connection.pragma("user_version") == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again under the lock: another process may have migrated meanwhile.
        for version in range(connection.pragma("user_version"), len(MIGRATIONS)):
            connection.execute(MIGRATIONS[version])
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(MIGRATIONS))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
