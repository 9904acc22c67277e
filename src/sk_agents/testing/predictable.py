"""Time and ids that a test can predict."""

from __future__ import annotations

import itertools
import threading
import uuid
from datetime import UTC, datetime, timedelta


class SettableClock:
    """Time that moves only when a test says so.

    Wall time and lease time are moved together by `advance` and apart by `set_wall`.
    """

    def __init__(self, wall: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._wall = wall
        self._monotonic = 1000.0

    def now(self) -> datetime:
        with self._lock:
            return self._wall

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError if `seconds` is negative: it never runs backwards."""
        if seconds < 0:
            raise ValueError("time passes forwards only; set_wall moves the wall clock back")
        with self._lock:
            self._wall += timedelta(seconds=seconds)
            self._monotonic += seconds

    def set_wall(self, wall: datetime) -> None:
        """Move the wall clock alone, as a person or a time server would."""
        if wall.tzinfo is None:
            raise ValueError("wall time has a time zone")
        with self._lock:
            self._wall = wall.astimezone(UTC)


class SequentialIds:
    """UUIDs that count: `00000000-0000-4000-8000-000000000001`, then `...2`. Guessable."""

    def __init__(self, first: int = 1) -> None:
        self._numbers = itertools.count(first)

    def new(self) -> str:
        return str(uuid.UUID(int=(4 << 76) | (8 << 60) | next(self._numbers)))
