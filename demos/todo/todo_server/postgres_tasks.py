"""Tasks in PostgreSQL, in tables of their own beside whatever else the database holds.

How long an acknowledged task is kept is as the database is set: `fsync`, `synchronous_commit`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date
from threading import Lock
from typing import Any, LiteralString, Self

from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    ConfigurationError,
    StoreBusy,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from todo_server.tasks import State, Task, check_texts, not_found, shown_time

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise ConfigurationError(
        "PostgreSQL's driver is not installed: pip install 'teal-agents[postgres]'"
    ) from error

logger = logging.getLogger(__name__)

FORM = "postgresql://user:password@host:port/database"
# What the URL itself says comes first.
OPTIONS = {
    "application_name": "teal-todo",
    "connect_timeout": 5,
    # Milliseconds until a peer that acknowledges nothing is given up.
    "tcp_user_timeout": 10_000,
}
# The first statement of each transaction. For this one only: a pooler may lend the session on.
BEGUN = "SET LOCAL statement_timeout = '10s'"

VERSION = 1
# Taken while the tables are looked for and made.
SCHEMA_LOCK = 0x70D07A5C
SCHEMA = """
CREATE TABLE todo_schema (version integer NOT NULL);
INSERT INTO todo_schema VALUES (1);
CREATE TABLE todo_task (
    user_id text NOT NULL,
    id bigint NOT NULL,
    title text NOT NULL,
    notes text NOT NULL,
    due date,
    created_at timestamptz NOT NULL,
    completed_at timestamptz,
    PRIMARY KEY (user_id, id)
);
CREATE TABLE todo_last_id (user_id text PRIMARY KEY, id bigint NOT NULL);
"""
COLUMNS: LiteralString = "id, title, notes, due, created_at, completed_at"
ADD: LiteralString = f"""
WITH next AS (
    INSERT INTO todo_last_id AS last VALUES (%s, 1)
    ON CONFLICT (user_id) DO UPDATE SET id = last.id + 1 RETURNING user_id, id
)
INSERT INTO todo_task (user_id, id, title, notes, due, created_at)
SELECT user_id, id, %s, %s, %s, now() FROM next RETURNING {COLUMNS}
"""
CONDITIONS: dict[State, LiteralString] = {
    "open": "AND completed_at IS NULL",
    "done": "AND completed_at IS NOT NULL",
    "all": "",
}
COMPLETE: LiteralString = f"""
UPDATE todo_task SET completed_at = coalesce(completed_at, now())
WHERE user_id = %s AND id = %s RETURNING {COLUMNS}
"""
UPDATE: LiteralString = f"""
UPDATE todo_task
SET title = coalesce(%s, title), notes = coalesce(%s, notes), due = coalesce(%s, due)
WHERE user_id = %s AND id = %s RETURNING {COLUMNS}
"""
DELETE: LiteralString = f"DELETE FROM todo_task WHERE user_id = %s AND id = %s RETURNING {COLUMNS}"

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresTasks:
    """A `TaskStore` over one connection, made again when it was lost."""

    def __init__(self, url: str) -> None:
        """Raises ConfigurationError: the URL makes no sense. Its message repeats nothing of it."""
        self._options = {**OPTIONS, **_options(url)}
        self._lock = Lock()
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        with self._lock:
            try:
                self._connection = self._connected()
                with self._connection.transaction():
                    _prepare(self._connection)
            except errors.OperationalError as error:
                self._close()
                raise StoreUnavailable(f"PostgreSQL cannot be reached: {_line(error)}") from error
            except psycopg.Error as error:
                self._close()
                message = f"this database cannot be used for a todo list: {_line(error)}"
                raise ConfigurationError(message) from error
            except ConfigurationError:
                self._close()
                raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._close()

    def add(self, user_id: str, title: str, notes: str, due: date | None) -> Task:
        check_texts(user_id, title, notes)
        return self._changed(ADD, user_id, title, notes, due)[0]

    def list(self, user_id: str, state: State, limit: int) -> list[Task]:
        check_texts(user_id)
        statement: LiteralString = (
            f"SELECT {COLUMNS} FROM todo_task WHERE user_id = %s {CONDITIONS[state]}"
            " ORDER BY due IS NULL, due, id LIMIT %s"
        )
        with self._lock:
            connection = self._begun()
            try:
                rows = connection.execute(statement, (user_id, limit)).fetchall()
                connection.rollback()
            except psycopg.Error as error:
                raise self._failed(error) from error
        return [_task(row) for row in rows]

    def complete(self, user_id: str, id: int) -> Task:
        check_texts(user_id)
        return _only(id, self._changed(COMPLETE, user_id, id))

    def update(
        self,
        user_id: str,
        id: int,
        *,
        title: str | None = None,
        notes: str | None = None,
        due: date | None = None,
    ) -> Task:
        check_texts(user_id, title, notes)
        return _only(id, self._changed(UPDATE, title, notes, due, user_id, id))

    def delete(self, user_id: str, id: int) -> Task:
        check_texts(user_id)
        return _only(id, self._changed(DELETE, user_id, id))

    def _changed(
        self, statement: LiteralString, *values: str | int | date | None
    ) -> Sequence[Task]:
        with self._lock:
            connection = self._begun()
            try:
                rows = connection.execute(statement, values).fetchall()
            except psycopg.Error as error:
                raise self._failed(error) from error
            try:
                connection.commit()
            except psycopg.Error as error:
                self._failed(error)
                raise CommitOutcomeUnknown(
                    "The todo list's database went away; whether the change was made is not known."
                ) from error
        return [_task(row) for row in rows]

    def _begun(self) -> Connection:
        """A connection in a transaction. Nothing was asked of it yet, so one that was dropped while
        it was idle can be replaced without an error for the caller.
        """
        if self._connection is not None:
            try:
                self._connection.execute(BEGUN)
                return self._connection
            except psycopg.Error:
                self._close()
        try:
            self._connection = self._connected()
            self._connection.execute(BEGUN)
        except psycopg.Error as error:
            raise self._failed(error) from error
        return self._connection

    def _connected(self) -> Connection:
        # Prepared statements would not survive a pooler.
        connection = psycopg.connect("", prepare_threshold=None, **self._options)
        # Whatever the database's default is: more would only make changes fail that need not.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    def _failed(self, error: psycopg.Error) -> StoreError:
        """Give the connection up; the error in our words. PostgreSQL's own go to the log."""
        self._close()
        # Not the details: they may quote a row.
        logger.warning("PostgreSQL failed: %s", error.diag.message_primary or _line(error))
        match error:
            case errors.QueryCanceled() | errors.LockNotAvailable():
                return StoreBusy("The todo list's database is too busy; nothing was changed.")
            case errors.ReadOnlySqlTransaction():
                return StoreReadOnly("The todo list's database cannot be written now.")
            case errors.OperationalError():
                return StoreUnavailable(
                    "The todo list's database cannot be reached now; nothing was changed."
                )
            case _:
                return StoreError("The todo list's database refused; nothing was changed.")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _options(url: str) -> dict[str, Any]:
    """Raises ConfigurationError. A password that is not percent-encoded may end up as anything,
    a port for one, so nothing of the URL is repeated.
    """
    try:
        options = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        options = {"port": "none"}
    if not str(options.get("port") or "0").replace(",", "").isdecimal():
        raise ConfigurationError(
            f"the todo store's URL is not PostgreSQL's: {FORM}; what is special in a URL must be"
            " percent-encoded in its parts"
        )
    return dict(options)


def _prepare(connection: Connection) -> None:
    """Raises ConfigurationError."""
    connection.execute(BEGUN)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
    [(encoding, exists)] = connection.execute(
        "SELECT current_setting('server_encoding'), to_regclass('todo_schema') IS NOT NULL"
    ).fetchall()
    if encoding != "UTF8":
        raise ConfigurationError(f"the database must be in UTF8, not {encoding}")
    if not exists:
        connection.execute(SCHEMA)
    [(version,)] = connection.execute("SELECT max(version) FROM todo_schema").fetchall()
    if not isinstance(version, int):
        raise ConfigurationError("the table todo_schema of this database is not a todo list's")
    if version > VERSION:
        raise ConfigurationError("the todo list was written by a newer version")


def _only(id: int, tasks: Sequence[Task]) -> Task:
    if not tasks:
        raise not_found(id)
    return tasks[0]


def _task(row: tuple[Any, ...]) -> Task:
    id, title, notes, due, created_at, completed_at = row
    return Task(
        id=id,
        title=title,
        notes=notes,
        due=due,
        created_at=shown_time(created_at),
        completed_at=shown_time(completed_at) if completed_at else None,
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
