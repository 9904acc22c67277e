"""Tasks in a SQLite file.

SQLite waits for nothing but the disk and other processes' locks, those for a few seconds; it does
so in a thread, one operation after the other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Self

import apsw

from sk_agents.exceptions import ConfigurationError, StoreBusy, StoreError
from sk_agents.private_files import make_private_file, make_private_folder
from todo_server.tasks import State, Task, check_texts, not_found, shown_time

logger = logging.getLogger(__name__)

# How long another process's lock is waited for.
BUSY_MS = 5_000
RETRY_SECONDS = 0.01
# Marks the file as ours, so that no other one is written to by mistake.
APPLICATION_ID = 0x70D07A5C
VERSION = 1
SCHEMA = """
CREATE TABLE task (
    user_id TEXT NOT NULL,
    id INTEGER NOT NULL,
    title TEXT NOT NULL,
    notes TEXT NOT NULL,
    due TEXT,
    created_at TEXT NOT NULL,
    completed_at TEXT,
    PRIMARY KEY (user_id, id)
) WITHOUT ROWID;
CREATE TABLE last_id (user_id TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
"""
COLUMNS = "id, title, notes, due, created_at, completed_at"
CONDITIONS: dict[State, str] = {
    "open": "AND completed_at IS NULL",
    "done": "AND completed_at IS NOT NULL",
    "all": "",
}
LARGEST_ID = 2**63 - 1


class SqliteTasks:
    """A `TaskStore`."""

    def __init__(self, path: Path, *, busy_ms: int = BUSY_MS) -> None:
        self._path = path
        self._busy_ms = busy_ms
        self._lock = Lock()
        self._opened: apsw.Connection | None = None

    @property
    def _connection(self) -> apsw.Connection:
        assert self._opened is not None, "not entered"
        return self._opened

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self._close)

    def _open(self) -> None:
        try:
            make_private_folder(self._path.parent)
            make_private_file(self._path)
            self._opened = apsw.Connection(str(self._path))
            self._opened.set_busy_timeout(self._busy_ms)
            self._prepare()
        except (OSError, apsw.Error) as error:
            self._close()
            message = f"{self._path}: cannot be used as a todo list: {error}"
            raise ConfigurationError(message) from error
        except ConfigurationError:
            self._close()
            raise

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _prepare(self) -> None:
        connection = self._connection
        # Before anything is written: the file may be another program's.
        self._check_identity()
        self._use_wal()
        connection.execute("PRAGMA synchronous = FULL")
        with _transaction(connection):
            if self._check_identity() == 0:
                connection.execute(SCHEMA)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")

    def _use_wal(self) -> None:
        """SQLite does not wait by itself for another process that switches the file to WAL."""
        give_up = time.monotonic() + self._busy_ms / 1000
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except apsw.BusyError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(RETRY_SECONDS)

    def _check_identity(self) -> int:
        """The version of its schema; 0 for an empty file."""
        # First: another process that fills an empty file sets its id in the same transaction.
        [(tables,)] = self._connection.execute("SELECT count(*) FROM sqlite_schema")
        [(found,)] = self._connection.execute("PRAGMA application_id")
        if found not in (0, APPLICATION_ID) or (found == 0 and tables):
            raise ConfigurationError(f"{self._path}: this file is not a todo list")
        [(version,)] = self._connection.execute("PRAGMA user_version")
        if version > VERSION:
            raise ConfigurationError(f"{self._path}: written by a newer version")
        return int(version)

    async def add(self, user_id: str, title: str, notes: str, due: date | None) -> Task:
        check_texts(user_id, title, notes)
        return await asyncio.to_thread(self._add, user_id, title, notes, due)

    async def list(self, user_id: str, state: State, limit: int) -> list[Task]:
        check_texts(user_id)
        return [*await asyncio.to_thread(self._list, user_id, state, limit)]

    async def complete(self, user_id: str, id: int) -> Task:
        check_texts(user_id)
        statement = (
            "UPDATE task SET completed_at = coalesce(completed_at, ?)"
            f" WHERE user_id = ? AND id = ? RETURNING {COLUMNS}"
        )
        return await asyncio.to_thread(self._changed, id, statement, (_now(), user_id, id))

    async def update(
        self,
        user_id: str,
        id: int,
        *,
        title: str | None = None,
        notes: str | None = None,
        due: date | None = None,
    ) -> Task:
        check_texts(user_id, title, notes)
        statement = (
            "UPDATE task SET title = coalesce(?, title), notes = coalesce(?, notes),"
            f" due = coalesce(?, due) WHERE user_id = ? AND id = ? RETURNING {COLUMNS}"
        )
        values = (title, notes, _day(due), user_id, id)
        return await asyncio.to_thread(self._changed, id, statement, values)

    async def delete(self, user_id: str, id: int) -> Task:
        check_texts(user_id)
        statement = f"DELETE FROM task WHERE user_id = ? AND id = ? RETURNING {COLUMNS}"
        return await asyncio.to_thread(self._changed, id, statement, (user_id, id))

    def _add(self, user_id: str, title: str, notes: str, due: date | None) -> Task:
        with self._changing() as connection:
            [(id,)] = connection.execute(
                "INSERT INTO last_id VALUES (?, 1)"
                " ON CONFLICT DO UPDATE SET id = id + 1 RETURNING id",
                (user_id,),
            )
            return self._one(
                id,
                f"INSERT INTO task VALUES (?, ?, ?, ?, ?, ?, NULL) RETURNING {COLUMNS}",
                (user_id, id, title, notes, _day(due), _now()),
            )

    def _list(self, user_id: str, state: State, limit: int) -> Sequence[Task]:
        with self._lock, _explained():
            rows = self._connection.execute(
                f"SELECT {COLUMNS} FROM task WHERE user_id = ? {CONDITIONS[state]}"
                " ORDER BY due IS NULL, due, id LIMIT ?",
                (user_id, limit),
            )
            return [_task(row) for row in rows]

    def _changed(self, id: int, statement: str, values: Sequence[str | int | None]) -> Task:
        with self._changing():
            return self._one(id, statement, values)

    def _one(self, id: int, statement: str, values: Sequence[str | int | None]) -> Task:
        """The task that a statement is about. Raises TaskNotFound."""
        rows = list(self._connection.execute(statement, values)) if id <= LARGEST_ID else []
        if not rows:
            raise not_found(id)
        return _task(rows[0])

    @contextmanager
    def _changing(self) -> Iterator[apsw.Connection]:
        with self._lock, _explained(), _transaction(self._connection):
            yield self._connection


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A disk that is full may have undone it already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _explained() -> Iterator[None]:
    """What SQLite cannot do, in our words; its own go to the log."""
    try:
        yield
    except apsw.BusyError as error:
        raise StoreBusy("The todo list is in use; nothing was changed.") from error
    except apsw.Error as error:
        logger.warning("todo list failed", exc_info=error)
        raise StoreError("The todo list cannot be used now; nothing was changed.") from error


def _task(row: Any) -> Task:
    return Task.model_validate(dict(zip(COLUMNS.split(", "), row, strict=True)))


def _day(due: date | None) -> str | None:
    return due.isoformat() if due else None


def _now() -> str:
    return shown_time(datetime.now(UTC))
