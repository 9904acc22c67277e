"""The connections of one store: one that commits, a bounded number that read, one for leases."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, TypeVar

import psycopg

from sk_agents.exceptions import StoreUnavailable
from sk_agents.persistence.postgres import arrays
from sk_agents.postgres_access import (
    AsyncConnection,
    BlockingConnection,
    PostgresAccess,
    is_lost,
    store_error,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
Rows = list[tuple[Any, ...]]

READERS = 8
# How long a read waits for one of them to be free.
BUSY_SECONDS = 5.0
# How long a statement may take until it is cancelled, and then until the connection is given up.
STATEMENT_SECONDS = 13.0
CANCEL_SECONDS = 2.0
RENEWAL_SECONDS = 4.0


async def open_connection(access: PostgresAccess) -> AsyncConnection:
    """Raises StoreError."""
    connection = await access.connect()
    arrays.register(connection)
    return connection


async def fetch(
    connection: AsyncConnection, statement: LiteralString, values: Mapping[str, Any]
) -> Rows:
    """All rows of a statement. Raises psycopg.Error; the connection is closed if it is silent."""
    with _bounded(connection) as cancelling:
        try:
            async with connection.cursor(binary=True) as cursor:
                await cursor.execute(statement, values)
                rows = await cursor.fetchall() if cursor.description is not None else []
        except asyncio.CancelledError:
            await connection.close()
            raise
        except psycopg.Error as error:
            if cancelling:
                await connection.close()
                raise psycopg.OperationalError("the database did not answer in time") from error
            raise
        if cancelling:
            await connection.close()  # the next statement might be cancelled instead
        return rows


@contextmanager
def _bounded(connection: AsyncConnection) -> Iterator[list[asyncio.Task[None]]]:
    """Yields what is empty as long as the statement is not late.

    Its task is not cancelled: psycopg would then wait up to ten seconds more for a silent server.
    """
    loop = asyncio.get_running_loop()
    cancelling: list[asyncio.Task[None]] = []
    timers = (
        loop.call_later(
            STATEMENT_SECONDS, lambda: cancelling.append(loop.create_task(_cancel(connection)))
        ),
        loop.call_later(STATEMENT_SECONDS + CANCEL_SECONDS, _hang_up, connection),
    )
    try:
        yield cancelling
    finally:
        for timer in timers:
            timer.cancel()
        for task in cancelling:
            task.cancel()


async def _cancel(connection: AsyncConnection) -> None:
    with suppress(psycopg.Error):
        await connection.cancel_safe(timeout=CANCEL_SECONDS)


def _hang_up(connection: AsyncConnection) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as one:
        _cut(one)


class PostgresReaders:
    """Connections that read, opened when they are needed and used again."""

    def __init__(self, access: PostgresAccess) -> None:
        self._access = access
        self._idle: list[AsyncConnection] = []
        self._in_use = 0
        # Reads that wait for a connection in use, as the database gives no further one.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._free = asyncio.Semaphore(READERS)
        self._reads: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def fetch(self, statement: LiteralString, **values: Any) -> Rows:
        return await self.run(lambda connection: fetch(connection, statement, values))

    async def run(self, read: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """What `read` returns. It goes on when its caller is cancelled: to break it off would cost
        the connection.

        Raises:
            StoreUnavailable: the database is away, or all connections are busy.
        """
        if self._closed:
            raise StoreUnavailable(f"{self._access}: the store is closed")
        task = asyncio.ensure_future(self._run(read))
        self._reads.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Finish the reads under way, then close."""
        self._closed = True
        await asyncio.gather(*self._reads, return_exceptions=True)
        for connection in self._idle:
            await connection.close()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._reads.discard(task)
        if not task.cancelled():
            task.exception()  # it was given to the caller, unless that was cancelled

    async def _run(self, read: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailable(f"{self._access}: all {READERS} connections are busy") from None
        try:
            while True:
                connection, was_idle = await self._take()
                try:
                    return await read(connection)
                except psycopg.Error as error:
                    if not is_lost(connection):
                        raise store_error(error, self._access) from error
                    if not was_idle:
                        raise self._access.unreachable(error) from error
                    # It was lost while it was idle, and so were the others.
                finally:
                    await self._put_back(connection)
        finally:
            self._free.release()

    async def _take(self) -> tuple[AsyncConnection, bool]:
        """A connection, and whether it was idle. If the database gives no further one, then one of
        those in use, in its turn: it may have room for no more of them."""
        while not self._idle:
            try:
                connection = await open_connection(self._access)
            except StoreUnavailable:
                if self._idle:
                    continue  # one came back while another was asked for
                if not self._in_use:
                    self._wake_next()  # it has nothing to wait for either
                    raise
                await self._one_back()
            else:
                self._in_use += 1
                return connection, False
        self._in_use += 1
        return self._idle.pop(), True

    async def _one_back(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(BUSY_SECONDS):
                await waiter
        except TimeoutError:
            raise StoreUnavailable(
                f"{self._access}: all connections are busy, and there is no further one"
            ) from None

    async def _put_back(self, connection: AsyncConnection) -> None:
        self._in_use -= 1
        try:
            if is_lost(connection) or self._closed:
                await connection.close()
            else:
                self._idle.append(connection)
        finally:
            self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class LeaseConnection:
    """Signs of life past the event loop, from any thread: one connection, made when first used."""

    def __init__(self, access: PostgresAccess) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._connection: BlockingConnection | None = None

    def execute(self, statement: LiteralString, **values: Any) -> None:
        """Raises StoreError: also if there is no answer within a few seconds."""
        with self._lock:
            if self._connection is not None:
                try:
                    self._execute(self._connection, statement, values)
                    return
                except psycopg.OperationalError:
                    self._close()  # lost since it was used last: once more with a new one
            self._connection = self._access.connect_blocking()
            try:
                self._execute(self._connection, statement, values)
            except psycopg.Error as error:
                self._close()
                raise store_error(error, self._access) from error

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(
        self, connection: BlockingConnection, statement: LiteralString, values: Mapping[str, Any]
    ) -> None:
        # libpq waits without end for a peer that is silent but alive.
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            bound = threading.Timer(RENEWAL_SECONDS, _cut, (same,))
            bound.daemon = True
            bound.start()
            try:
                connection.execute(statement, values)
            finally:
                bound.cancel()
                bound.join()


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
