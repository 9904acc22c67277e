"""A few threads that read, each with a connection of its own, so that no read stalls the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from sk_agents.exceptions import StoreUnavailable
from sk_agents.persistence.sqlite.files import SqliteFiles
from sk_agents.persistence.sqlite.schema import open_for_reading, translated

T = TypeVar("T")

READERS = 4


class ReaderPool:
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
            raise StoreUnavailable(f"{self._path}: the store is closed")
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
            connection = self._local.connection = open_for_reading(self._path)
            self._opened.append(connection)
            self._files.check()
        return connection
