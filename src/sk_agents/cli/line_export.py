"""What `export` commands share: in which format, and where it is written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from sk_agents.exceptions import ConfigurationError


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


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
