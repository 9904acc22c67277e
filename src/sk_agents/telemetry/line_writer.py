"""Lines on their way to standard error or output, written by a thread of their own.

A pipe that nobody reads fills up, and a write to it waits for ever. The event loop never does that
write: what cannot be written waits in a bounded queue, and beyond that is dropped and counted.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

from sk_agents.telemetry.instruments import Instrument, Readings

MAX_BYTES = 1024 * 1024
CLOSING_SECONDS = 1.0
RETRY_SECONDS = 0.1

LINES_DROPPED = Instrument(
    "teal.log.lines_dropped",
    "teal_log_lines_dropped",
    "counter",
    "Log lines not written: the reader was too slow, or the line came again and again.",
    ("reason",),
)


@dataclass(slots=True)
class LineCounts:
    """Of this process: there is one standard error."""

    unread: int = 0
    repeated: int = 0


COUNTS = LineCounts()


def readings() -> Readings:
    return [
        (LINES_DROPPED, ("unread",), COUNTS.unread),
        (LINES_DROPPED, ("repeated",), COUNTS.repeated),
    ]


class LineWriter:
    """`put` never waits. `notice` makes the line that tells how many were dropped."""

    def __init__(
        self,
        stream: TextIO,
        notice: Callable[[int], str] | None = None,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._write = _writing_to(stream)
        self._notice = notice
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._size = self._dropped = 0
        self._change = threading.Condition()
        self._is_closing = self._is_busy = False
        self._thread = threading.Thread(target=self._work, name="line-writer", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        data = line.encode(errors="backslashreplace") + b"\n"
        with self._change:
            if self._is_closing:
                return
            if self._size + len(data) > self._max_bytes:
                self._dropped += 1
                COUNTS.unread += 1
                return
            self._lines.append(data)
            self._size += len(data)
            self._change.notify_all()

    def flush(self, seconds: float = CLOSING_SECONDS) -> bool:
        """Whether all that was put is written within so many seconds."""
        with self._change:
            return self._change.wait_for(lambda: not self._lines and not self._is_busy, seconds)

    def close(self, seconds: float = CLOSING_SECONDS) -> None:
        """Write what waits, for so long; the rest is lost with its reader."""
        with self._change:
            self._is_closing = True
            self._change.notify_all()
        self._thread.join(seconds)

    def _work(self) -> None:
        try:
            for data in self._taken():
                self._write(data)
        except (OSError, ValueError):
            # Closed by the other side, or by the interpreter on its way out.
            with self._change:
                self._is_closing, self._is_busy = True, False
                self._lines.clear()
                self._change.notify_all()

    def _taken(self) -> Iterator[bytes]:
        while True:
            with self._change:
                self._is_busy = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._lines or self._is_closing)
                if not self._lines:
                    return
                self._is_busy = True
                data = self._lines.popleft()
                self._size -= len(data)
                dropped, self._dropped = self._dropped, 0
            yield data
            if dropped and self._notice is not None:
                yield self._notice(dropped).encode(errors="backslashreplace") + b"\n"


def print_line(stream: TextIO, line: str) -> None:
    """One line, or none if nobody takes it within `CLOSING_SECONDS`."""
    writer = LineWriter(stream)
    writer.put(line)
    writer.close()


def _writing_to(stream: TextIO) -> Callable[[bytes], None]:
    """Past the stream's own buffer, which others would wait for at the end of the process."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return lambda data: _write_text(stream, data)
    return lambda data: _write_all(number, data)


def _write_text(stream: TextIO, data: bytes) -> None:
    stream.write(data.decode())
    stream.flush()


def _write_all(number: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(number, rest) :]
        except BlockingIOError:
            # Another program that shares it has made it so.
            select.select([], [number], [], RETRY_SECONDS)
