"""Answers as Markdown on a terminal, while they are being written.

A block (paragraph, list, table, code) that is complete is printed and stays. The one that still
grows is drawn again with each piece, below what stays, and no taller than the screen.
"""

from __future__ import annotations

import re
import time
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment

from sk_agents.cli.safe_text import escaped

FENCE = re.compile(r"\s*(`{3,}|~{3,})")
# Drawing costs more than a piece of text is worth.
FRAME_SECONDS = 0.06
# The prompt and the line under the text stay visible.
ROWS_BELOW = 2


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class AnswerMarkdown(Markdown):
    """Shows all that is in the text: HTML as it is written, and the address of each link."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
    }
    _parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])

    def __init__(self, text: str) -> None:
        safe = escaped(text)
        super().__init__(safe, code_theme="ansi_dark", hyperlinks=False)
        # Rich parses HTML and leaves it out.
        self.parsed = self._parser.parse(safe)


class MarkdownRows:
    """A text as Markdown, without rows of space before and after it; with `most`, the last rows of
    it. `blank` adds an empty one before."""

    def __init__(self, text: str, most: int | None = None, *, blank: bool = False) -> None:
        self._text = text
        self._most = most
        self._blank = blank

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wrapped = options.update(no_wrap=False, overflow="fold", height=None)
        rows = console.render_lines(AnswerMarkdown(self._text), wrapped, pad=False)
        while rows and _is_blank(rows[0]):
            del rows[0]
        while rows and _is_blank(rows[-1]):
            del rows[-1]
        if self._blank:
            rows.insert(0, [])
        for row in rows if self._most is None else rows[-self._most :]:
            yield from _without_padding(row)
            yield Segment.line()


def _without_padding(row: list[Segment]) -> list[Segment]:
    """A row that ends with its last letter: what is copied has no spaces after it."""
    kept = list(row)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = kept[-1]._replace(text=kept[-1].text.rstrip())
    return kept


def _is_blank(row: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in row)


class MarkdownStream:
    """One answer that grows; what stands before `start` has been shown already."""

    def __init__(self, console: Console, start: int = 0) -> None:
        self._console = console
        self._text = ""
        self._printed = start
        self._is_first = True
        self._live: Live | None = None
        self._drawn_at = 0.0

    def update(self, text: str) -> None:
        """`text` is the whole answer so far."""
        self._text = text
        end = end_of_blocks(text, self._printed)
        if end > self._printed:
            self._print(text[self._printed : end])
            self._printed = end
        if time.monotonic() - self._drawn_at >= FRAME_SECONDS:
            self._draw(text[self._printed :])

    def finish(self) -> None:
        """Print what has only been drawn so far."""
        if self._text[self._printed :].strip():
            self._print(self._text[self._printed :])
        self._undraw()
        self._printed = len(self._text)

    def _print(self, block: str) -> None:
        self._undraw()
        if not block.strip():
            return
        if not self._is_first:
            self._console.print()
        self._is_first = False
        self._console.print(MarkdownRows(block), end="")

    def _draw(self, tail: str) -> None:
        if not tail.strip():
            return
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        rows = max(1, self._console.height - ROWS_BELOW)
        self._live.update(MarkdownRows(tail, rows, blank=not self._is_first), refresh=True)
        self._drawn_at = time.monotonic()

    def _undraw(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def end_of_blocks(text: str, start: int = 0) -> int:
    """Where the last block ends that nothing can change any more.

    That is after an empty line outside of a fence, if the next line begins at the margin: an
    indented one would belong to the block before it.
    """
    end, at, fence, is_after_blank = start, start, "", False
    for line in text[start:].splitlines(keepends=True):
        if is_after_blank and not fence and not line[0].isspace():
            end = at
        found = FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not line.strip(" \t\n`~"):
            fence = ""
        is_after_blank = not line.strip() and not fence
        at += len(line)
    return end
