"""The files behind an open database, and whether its path still leads to them.

A file that is removed or replaced under a running server can be written on for hours; all of it
is gone when the last connection closes. SQLite itself notices none of this in WAL mode.
"""

from __future__ import annotations

import os
from pathlib import Path

from sk_agents.exceptions import StoreBroken

SUFFIXES = ("", "-wal", "-shm")


class SqliteFiles:
    """Made while a connection in WAL mode is open: until it closes, SQLite replaces no file."""

    def __init__(self, path: Path) -> None:
        self._found = {name: _identity(name) for name in (f"{path}{end}" for end in SUFFIXES)}

    def check(self) -> None:
        """Raises StoreBroken, naming the file that is not the one this store has open."""
        for name, found in self._found.items():
            if _identity(name) != found:
                raise StoreBroken(
                    f"{name} was removed or replaced: what is written now is lost; restart"
                )


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_dev, found.st_ino
