"""What `export` commands share: from when on, in which format, how a line is written, and where to.

An export holds what other people wrote, and it may end on a terminal or in a spreadsheet.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from sk_agents.cli.options import moment
from sk_agents.cli.safe_text import escaped
from sk_agents.exceptions import ConfigurationError


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


Since = Annotated[
    datetime | None,
    typer.Option(
        metavar="TIME",
        parser=moment,
        help="From then on: 2026-11-01, 2026-11-01T08:00:00Z (UTC unless it says so), 7d.",
    ),
]
OfAgent = Annotated[str | None, typer.Option(metavar="NAME", help="Of this agent.")]
InFormat = Annotated[Format, typer.Option("--format", help="Lines of JSON, or CSV.")]
Output = Annotated[
    Path | None,
    typer.Option(
        *("--output", "-o"),
        metavar="FILE",
        help="A new file, readable by you alone. Default: standard output.",
    ),
]


# What begins a formula, in each of the widths that spreadsheets take for one another.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula is no formula, and what a terminal would
    obey is escaped."""
    if not isinstance(value, str):
        return value
    text = escaped(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def json_line(document: dict[str, Any]) -> str:
    """Everything beyond ASCII is escaped: nothing is lost, and a terminal obeys none of it."""
    return json.dumps(document, separators=(",", ":")) + "\n"


@contextmanager
def written_to(path: Path | None) -> Iterator[TextIO]:
    """Raises ConfigurationError: the file exists, or cannot be written; no part of it is left."""
    from sk_agents.private_files import open_private  # noqa: PLC0415

    if path is None:
        with _told_of("standard output"):
            yield sys.stdout
            sys.stdout.flush()
        return
    with _told_of(path):
        file = open(path, "x", encoding="utf-8", newline="", opener=open_private)
        try:
            with file:
                yield file
        except BaseException:
            path.unlink(missing_ok=True)
            raise


@contextmanager
def _told_of(place: object) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # The reader has what it wanted.
        raise
    except OSError as error:
        raise ConfigurationError(f"{place}: {error.strerror}") from error
