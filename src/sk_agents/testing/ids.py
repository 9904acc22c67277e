"""Ids a test can foretell."""

from __future__ import annotations

import itertools
import uuid


class SequentialIds:
    """UUIDs that count: `00000000-0000-4000-8000-000000000001`, then `...2`. Guessable."""

    def __init__(self, first: int = 1) -> None:
        self._numbers = itertools.count(first)

    def new(self) -> str:
        return str(uuid.UUID(int=(4 << 76) | (8 << 60) | next(self._numbers)))
