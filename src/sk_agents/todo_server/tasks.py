"""Tasks in a SQLite file. Every operation is about one user's tasks and sees no others.

Several processes may use one file: each operation is one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import apsw
from pydantic import BaseModel, ConfigDict

from sk_agents.exceptions import ConfigurationError, NotFound

BUSY_MS = 5_000
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
-- Numbers are not used again: an old message must not mean a new task.
CREATE TABLE last_id (user_id TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
"""
COLUMNS = "id, title, notes, due, created_at, completed_at"

State = Literal["open", "done", "all"]


class Task(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: int
    title: str
    notes: str
    due: date | None
    created_at: str
    completed_at: str | None

    @property
    def is_done(self) -> bool:
        return self.completed_at is not None


class TaskNotFound(NotFound):
    """There is no such task."""


def store_path(url: str) -> Path:
    """Where the database named by a URL lies.

    Raises:
        ConfigurationError: it is not a SQLite URL with an absolute path.
    """
    scheme, _, rest = url.partition(":")
    if scheme in {"postgres", "postgresql"}:
        raise ConfigurationError("the todo server keeps tasks in SQLite; PostgreSQL is not served")
    if scheme != "sqlite" or not rest.startswith("///") or not rest.strip("/"):
        raise ConfigurationError("the todo store's URL must be sqlite:///path, an absolute path")
    return Path("/" + rest.lstrip("/"))


class TaskStore:
    """Raises ConfigurationError when made: the file cannot be used, or is not a todo list."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = apsw.Connection(str(path))
            self._connection.set_busy_timeout(BUSY_MS)
            self._prepare(path)
        except (OSError, apsw.Error) as error:
            raise ConfigurationError(f"{path}: cannot be used as a todo list: {error}") from error
        self._lock = Lock()

    def _prepare(self, path: Path) -> None:
        connection = self._connection
        # Before anything is written: the file may be somebody else's.
        self._check_identity(path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self._check_identity(path) == 0:
                connection.execute(SCHEMA)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
        finally:
            connection.execute("COMMIT")

    def _check_identity(self, path: Path) -> int:
        """The version of its schema; 0 for an empty file."""
        [(found,)] = self._connection.execute("PRAGMA application_id")
        [(tables,)] = self._connection.execute("SELECT count(*) FROM sqlite_schema")
        if found not in (0, APPLICATION_ID) or (found == 0 and tables):
            raise ConfigurationError(f"{path}: this file is not a todo list")
        [(version,)] = self._connection.execute("PRAGMA user_version")
        if version > VERSION:
            raise ConfigurationError(f"{path}: written by a newer version")
        return int(version)

    def close(self) -> None:
        self._connection.close()

    def add(self, user_id: str, title: str, notes: str, due: date | None) -> Task:
        with self._changing() as connection:
            [(id,)] = connection.execute(
                "INSERT INTO last_id VALUES (?, 1)"
                " ON CONFLICT DO UPDATE SET id = id + 1 RETURNING id",
                (user_id,),
            )
            connection.execute(
                "INSERT INTO task VALUES (?, ?, ?, ?, ?, ?, NULL)",
                (user_id, id, title, notes, due.isoformat() if due else None, _now()),
            )
            return self._task(user_id, id)

    def list(self, user_id: str, state: State, limit: int) -> list[Task]:
        """Those with a due date first, the most urgent one first."""
        condition = {
            "open": "AND completed_at IS NULL",
            "done": "AND completed_at IS NOT NULL",
            "all": "",
        }[state]
        with self._lock:
            rows = self._connection.execute(
                f"SELECT {COLUMNS} FROM task WHERE user_id = ? {condition}"
                " ORDER BY due IS NULL, due, id LIMIT ?",
                (user_id, limit),
            )
            return [_task(row) for row in rows]

    def complete(self, user_id: str, id: int) -> Task:
        """Done twice is done once. Raises TaskNotFound."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE task SET completed_at = coalesce(completed_at, ?)"
                " WHERE user_id = ? AND id = ?",
                (_now(), user_id, id),
            )
            return self._task(user_id, id)

    def update(self, user_id: str, id: int, changes: Mapping[str, str | None]) -> Task:
        """Raises TaskNotFound. `changes` has only the names `title`, `notes` and `due`."""
        assert changes.keys() <= {"title", "notes", "due"}
        with self._changing() as connection:
            for column, value in changes.items():
                connection.execute(
                    f"UPDATE task SET {column} = ? WHERE user_id = ? AND id = ?",
                    (value, user_id, id),
                )
            return self._task(user_id, id)

    def delete(self, user_id: str, id: int) -> Task:
        """The task as it was. Raises TaskNotFound."""
        with self._changing() as connection:
            task = self._task(user_id, id)
            connection.execute("DELETE FROM task WHERE user_id = ? AND id = ?", (user_id, id))
            return task

    def _task(self, user_id: str, id: int) -> Task:
        rows = self._connection.execute(
            f"SELECT {COLUMNS} FROM task WHERE user_id = ? AND id = ?", (user_id, id)
        )
        found = next(iter(rows), None)
        if found is None:
            raise TaskNotFound(f"There is no task {id}.")
        return _task(found)

    @contextmanager
    def _changing(self) -> Iterator[apsw.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _task(row: Any) -> Task:
    return Task.model_validate(dict(zip(COLUMNS.split(", "), row, strict=True)))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
