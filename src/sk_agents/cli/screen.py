"""The terminal: colours only where there is one, and nothing on it that a stranger put in control.

Everything is neutralised here, so no caller can forget it.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sk_agents.cli.neutral import neutral, one_line

DIM = "dim"
NOTE = "dim italic"
STRONG = "bold"
GOOD = "green"
WARN = "yellow"
BAD = "red"


class Screen:
    """`NO_COLOR` and pipes are respected by rich."""

    def __init__(self) -> None:
        # A terminal that cannot show a letter shows a question mark, not a traceback.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._is_line_open = False

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    def write(self, text: str, style: str = "") -> None:
        """A piece of a text that goes on."""
        if text:
            self._console.print(Text(neutral(text), style), end="")
            self._is_line_open = not text.endswith("\n")

    def line(self, text: str = "", style: str = "") -> None:
        """A line of its own."""
        self.end_line()
        self._console.print(Text(neutral(text), style))

    def end_line(self) -> None:
        if self._is_line_open:
            self._console.print()
            self._is_line_open = False

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """For people a table, for pipes one line a row with tabs between."""
        cells = [[one_line(cell) for cell in row] for row in rows]
        if not self.is_terminal:
            for row in cells:
                typer.echo("\t".join(row))
            return
        table = Table(*headings, box=None, pad_edge=False, header_style=DIM)
        for column in table.columns:
            column.overflow = "fold"
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table, soft_wrap=False)


def print_json(document: Any) -> None:
    """One document; everything beyond ASCII is escaped, so it is safe on a terminal too."""
    typer.echo(json.dumps(document, indent=2))


def print_json_line(document: Any) -> None:
    typer.echo(json.dumps(document, separators=(",", ":")))
