"""How a PostgreSQL database is reached: its URL, its password, what a connection is opened with.

For the store and the signals alike. A connection commits each statement by itself, so nothing
depends on which of a pooler's sessions a statement gets.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import subprocess
from typing import Any

from sk_agents.exceptions import (
    ConfigurationError,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TealError,
)

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise ConfigurationError(
        "PostgreSQL's driver is not installed: pip install 'teal-agents[postgres]'"
    ) from error

logger = logging.getLogger(__name__)

AsyncConnection = psycopg.AsyncConnection[tuple[Any, ...]]
BlockingConnection = psycopg.Connection[tuple[Any, ...]]

FORM = "postgresql://user:password@host:port/database"
# What the URL itself says comes before these.
DEFAULTS = {
    "application_name": "teal",
    "connect_timeout": 5,
    # Milliseconds until a peer that acknowledges nothing is given up.
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
# A prepared statement keeps the plan that it got while its table was small, so that must not be to
# read the whole table.
SESSION = (
    "-c enable_seqscan=off -c plan_cache_mode=force_generic_plan"
    " -c default_transaction_isolation=read\\ committed"
)
PASSWORD_SECONDS = 10.0


class PostgresAccess:
    """Opens connections to one database. Safe to use from any thread."""

    def __init__(self, url: str, *, password_command: str | None = None) -> None:
        """Raises ConfigurationError: the URL makes no sense. Its message repeats nothing of it."""
        self._options = {**DEFAULTS, **_options(url)}
        self._password_command = password_command
        # A pooler refuses the startup parameter in which a session's settings are sent.
        self._sends_settings = True

    def __str__(self) -> str:
        options = self._options
        return f"postgresql://{options.get('host', '')}/{options.get('dbname', '')}"

    async def connect(self) -> AsyncConnection:
        """A connection, which prepares its statements unless a pooler stands before the database.

        Raises:
            StoreError: it cannot be reached, or lets us not in.
        """
        password = await asyncio.to_thread(self._password)
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    "", autocommit=True, **self._parameters(password)
                )
            except psycopg.Error as error:
                if self._was_refused_settings(error):
                    continue
                raise self.unreachable(error) from error
            try:
                rows = await connection.execute("SELECT pg_backend_pid()", prepare=False)
                connection.prepare_threshold = _threshold(connection, await rows.fetchone())
                return connection
            except BaseException as error:
                await connection.close()
                if isinstance(error, psycopg.Error):
                    raise self.unreachable(error) from error
                raise

    def connect_blocking(self) -> BlockingConnection:
        """The same for an OS thread. Raises StoreError."""
        password = self._password()
        while True:
            try:
                connection = psycopg.connect("", autocommit=True, **self._parameters(password))
            except psycopg.Error as error:
                if self._was_refused_settings(error):
                    continue
                raise self.unreachable(error) from error
            connection.prepare_threshold = None
            return connection

    def unreachable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"{self}: the database cannot be reached ({_line(error)})")

    def _parameters(self, password: str | None) -> dict[str, Any]:
        parameters = dict(self._options)
        if password is not None:
            parameters["password"] = password
        if self._sends_settings:
            parameters["options"] = f"{parameters.get('options', '')} {SESSION}".strip()
        return parameters

    def _was_refused_settings(self, error: psycopg.Error) -> bool:
        """Whether to try without them, for now and later."""
        if self._sends_settings and "startup parameter" in str(error):
            self._sends_settings = False
            return True
        return False

    def _password(self) -> str | None:
        """What the command prints: a password that is only good for a while."""
        if self._password_command is None:
            return None
        try:
            done = subprocess.run(
                shlex.split(self._password_command),
                capture_output=True,
                check=True,
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=PASSWORD_SECONDS,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            # Not the error itself: it repeats the command, which may hold a secret.
            raise StoreUnavailable(
                f"TA_POSTGRES_PASSWORD_COMMAND gave no password ({type(error).__name__})"
            ) from None
        password = done.stdout.strip("\r\n")
        if not password:
            raise StoreUnavailable("TA_POSTGRES_PASSWORD_COMMAND printed nothing")
        return password


def is_lost(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> bool:
    return connection.closed or connection.broken


def store_error(error: psycopg.Error, place: object) -> TealError:
    """What the database refused, in our words. The statement changed nothing.

    PostgreSQL's own words go along without their details, which may quote a row.
    """
    said = error.diag.message_primary or _line(error)
    match error:
        case errors.DiskFull() | errors.OutOfMemory():
            return StoreFull(f"{place}: the database has no room; nothing was written ({said})")
        case errors.ReadOnlySqlTransaction():
            return StoreReadOnly(f"{place}: the database cannot be written ({said})")
        case errors.QueryCanceled() | errors.LockNotAvailable() | errors.TooManyConnections():
            return StoreBusy(f"{place}: the database is too busy ({said})")
        case errors.InsufficientPrivilege():
            return StoreUnavailable(f"{place}: the database role may not do this ({said})")
        case _:
            return StoreError(f"{place}: the database refused ({said})")


def _threshold(connection: AsyncConnection, row: tuple[Any, ...] | None) -> int | None:
    """How often a statement is run before it is prepared; never through a pooler.

    A pooler gives its clients process ids of its own, and the next statement another session.
    """
    direct = row is not None and row[0] == connection.info.backend_pid
    return 2 if direct else None


def _options(url: str) -> dict[str, Any]:
    """A password that is not percent-encoded may end up as anything, a port for one, so nothing of
    the URL is repeated."""
    try:
        options = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        options = {"port": "none"}
    if not str(options.get("port") or "0").replace(",", "").isdecimal():
        raise ConfigurationError(
            f"the URL is not PostgreSQL's: {FORM}; what is special in a URL must be"
            " percent-encoded in its parts"
        )
    return dict(options)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
