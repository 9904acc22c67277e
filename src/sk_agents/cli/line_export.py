"""What `export` commands share: since when, in which format, and where it is written."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TextIO

import typer

from sk_agents.exceptions import ConfigurationError

_AGO = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


def moment(text: str) -> datetime:
    """A day, a time with its zone, or so long ago."""
    if ago := _AGO.fullmatch(text):
        return datetime.now(UTC) - timedelta(hours=int(ago[1]) * _HOURS[ago[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("must be like 2026-11-01, 2026-11-01T08:00:00Z or 7d") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula is no formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


@contextmanager
def written_to(path: Path | None) -> Iterator[TextIO]:
    """Raises ConfigurationError: the file exists, or cannot be written."""
    from sk_agents.private_files import open_private  # noqa: PLC0415

    if path is None:
        yield sys.stdout
        return
    try:
        file = open(path, "x", encoding="utf-8", newline="", opener=open_private)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    with file:
        yield file
