"""Signs of life, written past the event loop: that an owner lives, that a run is read.

They need not survive a lost machine, so their commits do not wait for the disk. They lie in one WAL
with commits that must survive it, hence:

- `synchronous=NORMAL`, not `OFF`: who begins the WAL again after a checkpoint must sync its new
  header before the first frame. Else a disk may keep a frame and lose the header, and the old
  header makes old frames valid again. Every later commit's sync covers the frames written here.
- No checkpoint, neither after a commit nor on closing: the group writer makes them all.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import apsw

from sk_agents.persistence.sqlite import rows
from sk_agents.persistence.sqlite.files import SqliteFiles
from sk_agents.persistence.sqlite.schema import leave_wal_alone, store_error

PATIENCE = 4.0

# Told after each commit how many frames the WAL has now.
WalGrew = Callable[[int], None]


class LeaseConnection:
    """Opened when it is first used."""

    def __init__(self, path: Path, files: SqliteFiles, wal_grew: WalGrew) -> None:
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

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _run(self, work: Callable[[apsw.Connection], None]) -> None:
        with self._lock:
            try:
                work(self._open())
            except apsw.Error as error:
                errno = self._connection.system_errno if self._connection else 0
                raise store_error(error, self._path, errno) from error
        self._files.check()

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            self._files.check()
            connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            self._set_up(connection)
            connection.set_busy_handler(_Gap())
            self._connection = connection
        return self._connection

    def _set_up(self, connection: apsw.Connection) -> None:
        connection.execute("PRAGMA synchronous = NORMAL")
        leave_wal_alone(connection)
        connection.set_wal_hook(self._committed)

    def _committed(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        self._wal_grew(frames)
        return apsw.SQLITE_OK


class _Gap:
    """SQLite's own handler sleeps ever longer and would miss the short gaps of a busy writer."""

    def __init__(self) -> None:
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._since = now
        time.sleep(random.uniform(0.0001, 0.0009))
        return now - self._since < PATIENCE
