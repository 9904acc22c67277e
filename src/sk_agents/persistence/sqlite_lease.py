"""Signs of life, written past the event loop: that an owner lives, that a run is read.

They need not survive a lost machine, so their commits do not wait for the disk.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection
from pathlib import Path

import apsw

from sk_agents.persistence import sqlite_rows as rows
from sk_agents.persistence.sqlite_schema import translated

PATIENCE = 4.0


class LeaseConnection:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None

    def renew(self, owner: str, alive_until: float) -> None:
        """Raises StoreBusy if no gap between other writers was found in time."""
        with self._lock, translated(self._path):
            rows.renew(self._open(), owner, alive_until)

    def mark_watched(self, run_ids: Collection[str], now: float, ago: float) -> None:
        """Raises StoreBusy as `renew` does."""
        with self._lock, translated(self._path):
            rows.mark_watched(self._open(), run_ids, now, ago)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            connection.execute("PRAGMA synchronous = OFF")
            connection.set_busy_handler(_Gap())
            self._connection = connection
        return self._connection


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
