"""Tasks in PostgreSQL, in tables of their own beside whatever else the database holds.

How long an acknowledged task is kept is as the database is set: `fsync`, `synchronous_commit`.

A database that hangs holds up the operations that wait for it, for a bounded time, and nothing
else: each has a connection of its own, of a few.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import date
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

CONNECTIONS = 4
# An operation with all its waiting; a connection that is silent for so long is given up.
OPERATION_SECONDS = 15.0

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class PostgresTasks:
    """A `TaskStore` over a few connections, each made when it is needed."""

    def __init__(self, url: str, *, operation_seconds: float = OPERATION_SECONDS) -> None:
        """Raises ConfigurationError: the URL makes no sense. Its message repeats nothing of it."""
        self._options = {**OPTIONS, **_options(url)}
        self._seconds = operation_seconds
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(CONNECTIONS)

    async def __aenter__(self) -> Self:
        connection = None
        try:
            async with asyncio.timeout(self._seconds):
                connection = await self._connected()
                async with connection.transaction():
                    await _prepare(connection)
        except (errors.OperationalError, TimeoutError) as error:
            await _close(connection)
            said = _line(error) or "it does not answer"
            raise StoreUnavailable(f"PostgreSQL cannot be reached: {said}") from error
        except psycopg.Error as error:
            await _close(connection)
            message = f"this database cannot be used for a todo list: {_line(error)}"
            raise ConfigurationError(message) from error
        except ConfigurationError:
            await _close(connection)
            raise
        self._idle.append(connection)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        while self._idle:
            await _close(self._idle.pop())

    async def add(self, user_id: str, title: str, notes: str, due: date | None) -> Task:
        check_texts(user_id, title, notes)
        return (await self._changed(ADD, user_id, title, notes, due))[0]

    async def list(self, user_id: str, state: State, limit: int) -> list[Task]:
        check_texts(user_id)
        statement: LiteralString = (
            f"SELECT {COLUMNS} FROM todo_task WHERE user_id = %s {CONDITIONS[state]}"
            " ORDER BY due IS NULL, due, id LIMIT %s"
        )
        return [*await self._changed(statement, user_id, limit, is_change=False)]

    async def complete(self, user_id: str, id: int) -> Task:
        check_texts(user_id)
        return _only(id, await self._changed(COMPLETE, user_id, id))

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
        return _only(id, await self._changed(UPDATE, title, notes, due, user_id, id))

    async def delete(self, user_id: str, id: int) -> Task:
        check_texts(user_id)
        return _only(id, await self._changed(DELETE, user_id, id))

    async def _changed(
        self, statement: LiteralString, *values: str | int | date | None, is_change: bool = True
    ) -> Sequence[Task]:
        """The tasks that one transaction returns."""
        is_committing = False
        try:
            async with asyncio.timeout(self._seconds), self._slots:
                async with self._begun() as connection:
                    rows = await (await connection.execute(statement, values)).fetchall()
                    is_committing = is_change
                    await connection.commit()
        except TimeoutError as error:
            if is_committing:
                raise self._unknown() from error
            raise StoreBusy(
                "The todo list's database does not answer; nothing was changed."
            ) from error
        except psycopg.Error as error:
            failure = self._failed(error)
            raise self._unknown() if is_committing else failure from error
        return [_task(row) for row in rows]

    @asynccontextmanager
    async def _begun(self) -> AsyncIterator[Connection]:
        """A connection in a transaction, kept for the next one unless something goes wrong.

        Nothing was asked of it yet, so one that was dropped while it was idle can be replaced
        without an error for the caller.
        """
        connection = None
        try:
            while self._idle and connection is None:
                connection = self._idle.pop()
                try:
                    await connection.execute(BEGUN)
                except psycopg.Error:
                    await _close(connection)
                    connection = None
            if connection is None:
                connection = await self._connected()
                await connection.execute(BEGUN)
            yield connection
        except BaseException:
            await _close(connection)
            raise
        self._idle.append(connection)

    async def _connected(self) -> Connection:
        # Prepared statements would not survive a pooler.
        connection = await psycopg.AsyncConnection.connect(
            "", prepare_threshold=None, **self._options
        )
        # Whatever the database's default is: more would only make changes fail that need not.
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        return connection

    def _unknown(self) -> CommitOutcomeUnknown:
        return CommitOutcomeUnknown(
            "The todo list's database went away; whether the change was made is not known."
        )

    def _failed(self, error: psycopg.Error) -> StoreError:
        """The error in our words. PostgreSQL's own go to the log."""
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


async def _close(connection: Connection | None) -> None:
    if connection is not None:
        await connection.close()


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


async def _prepare(connection: Connection) -> None:
    """Raises ConfigurationError."""
    await connection.execute(BEGUN)
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
    found = await connection.execute(
        "SELECT current_setting('server_encoding'), to_regclass('todo_schema') IS NOT NULL"
    )
    [(encoding, exists)] = await found.fetchall()
    if encoding != "UTF8":
        raise ConfigurationError(f"the database must be in UTF8, not {encoding}")
    if not exists:
        await connection.execute(SCHEMA)
    found = await connection.execute("SELECT max(version) FROM todo_schema")
    [(version,)] = await found.fetchall()
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
