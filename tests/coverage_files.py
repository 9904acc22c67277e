"""What measured programs leave behind: a file each, written as they end.

A program that a test kills in that moment leaves one without its tables, which is no measurement.
`coverage combine` would warn of it and keep it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def remove_unfinished(folder: Path) -> list[Path]:
    """Remove the files below `folder` that were not written to their end; returns them."""
    unfinished = [path for path in folder.glob(".coverage.*") if not _is_finished(path)]
    for path in unfinished:
        path.unlink()
    return unfinished


def _is_finished(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            database.execute("SELECT version FROM coverage_schema").fetchone()
    except sqlite3.DatabaseError:
        return False
    return True
