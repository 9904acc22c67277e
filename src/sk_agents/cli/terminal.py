"""The user's terminal: what is printed on its screen, and what is typed on its keyboard."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sk_agents.cli.markdown import MarkdownStream
from sk_agents.cli.safe_text import escaped, one_line

try:
    import termios
except ImportError:  # Windows has none.
    termios = None  # type: ignore[assignment]

try:
    import readline
except ImportError:  # Not built into every Python; lines are then read without editing.
    readline = None  # type: ignore[assignment]

DIM = "dim"
NOTE = "dim italic"
STRONG = "bold"
GOOD = "green"
WARN = "yellow"
BAD = "red"


class Screen:
    """Escapes everything it prints, so that no caller can forget it.

    Rich leaves colours out in a pipe and with `NO_COLOR`.
    """

    def __init__(self, *, plain: bool = False) -> None:
        """With `plain` Markdown is shown as it was written, as it is where a terminal cannot move
        its cursor, and in pipes."""
        # A terminal that cannot show a letter shows a question mark, not a traceback.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._is_line_open = False
        self._markdown: MarkdownStream | None = None
        is_able = self._console.is_terminal and not self._console.is_dumb_terminal
        self.shows_markdown = is_able and not plain

    def write(self, text: str, style: str = "") -> None:
        """Print a part of a line, or of several."""
        if text:
            self._console.print(Text(escaped(text), style), end="")
            self._is_line_open = not text.endswith("\n")

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line of its own."""
        self.end_line()
        self._console.print(Text(escaped(text), style))

    def note(self, text: str) -> None:
        self.line(f"({text})", NOTE)

    def grow_markdown(self, text: str, shown: int = 0) -> None:
        """Show an answer as far as it has come; `shown` characters of it are on the screen."""
        if self._markdown is None:
            self.end_line()
            self._markdown = MarkdownStream(self._console, shown)
        self._markdown.update(text)

    def answer(self, text: str) -> None:
        """Show a whole answer."""
        if self.shows_markdown:
            self.grow_markdown(text)
            self.end_line()
        else:
            self.line(text)

    @contextmanager
    def redrawn(self) -> Iterator[Callable[[Sequence[str], Sequence[Sequence[str]]], None]]:
        """Tables that take each other's place, each below a line of its own."""
        with Live(console=self._console, auto_refresh=False, screen=self.shows_markdown) as live:

            def show(lines: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
                head = [Text(escaped(line), DIM) for line in lines]
                live.update(Group(*head, _table(rows[0], rows[1:])), refresh=True)

            yield show

    def end_line(self) -> None:
        if self._markdown is not None:
            self._markdown.finish()
            self._markdown = None
        if self._is_line_open:
            self._console.print()
            self._is_line_open = False

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """On a terminal a table, in a pipe one line a row with tabs between the cells."""
        cells = [[one_line(cell) for cell in row] for row in rows]
        if not self._console.is_terminal:
            for row in cells:
                typer.echo("\t".join(row))
            return
        self._console.print(_table(headings, cells), soft_wrap=False)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*headings, box=None, pad_edge=False, header_style=DIM)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table


def print_json(document: Any, *, on_one_line: bool = False) -> None:
    """Everything beyond ASCII is escaped, so the output is safe on a terminal too."""
    layout: dict[str, Any] = {"separators": (",", ":")} if on_one_line else {"indent": 2}
    typer.echo(json.dumps(document, **layout))


class Keyboard:
    """Lines with editing and history, and longer texts in the user's own editor."""

    def complete_with(self, completions: Callable[[str], list[str]]) -> None:
        """What Tab offers for the word before the cursor."""
        if readline is None:
            return

        def complete(word: str, state: int) -> str | None:
            found = completions(word)
            return found[state] if state < len(found) else None

        readline.set_completer_delims(" \t\n")
        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")

    def line(self, prompt: str, prefill: str = "") -> str:
        """One line.

        Raises:
            EOFError: Ctrl-D.
            KeyboardInterrupt: Ctrl-C.
        """
        if readline is None or not prefill:
            return input(prompt)
        readline.set_startup_hook(lambda: readline.insert_text(prefill))
        try:
            return input(prompt)
        finally:
            readline.set_startup_hook(None)

    def answer(self, prompt: str) -> str:
        """One line in answer to a question. The history of messages does not keep it."""
        if termios is not None and sys.stdin.isatty():
            # What was typed before the question was seen cannot be its answer.
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
        typed = self.line(prompt)
        if typed and readline is not None and (count := readline.get_current_history_length()):
            readline.remove_history_item(count - 1)
        return typed

    def text(self, prompt: str, text: str, *, suffix: str) -> str:
        """The text as edited in `$VISUAL` or `$EDITOR`; without them, a new text on one line."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            return self.line(prompt)
        with tempfile.TemporaryDirectory(prefix="teal-") as folder:
            path = Path(folder) / f"edit{suffix}"
            path.write_text(text, encoding="utf-8")
            subprocess.run([*shlex.split(editor), str(path)], check=True)
            return path.read_text(encoding="utf-8")
