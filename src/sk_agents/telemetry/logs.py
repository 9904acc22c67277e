"""Log entries: the ids on each, secrets kept out of them, their lines written, or sent elsewhere.

Our own code logs no secrets; a library may, and so may an error's text.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import TextIO

from opentelemetry._logs import LoggerProvider, SeverityNumber
from opentelemetry.trace import get_current_span

from sk_agents.redaction import Redactor
from sk_agents.telemetry.instruments import Instrument, Readings

_ids: ContextVar[Mapping[str, str]] = ContextVar("log_ids", default=MappingProxyType({}))

MAX_BYTES = 1024 * 1024
CLOSING_SECONDS = 1.0
RETRY_SECONDS = 0.1

SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
)
# What these libraries log is about sending, and sending it would cause more of it.
SENDERS = ("opentelemetry", "urllib3", "requests")
# Facts that are written and not sent: who a person is.
KEPT_HERE = frozenset(("user_id",))
# What every entry has; anything else was passed as `extra`.
PLAIN = frozenset(vars(logging.makeLogRecord({}))).union(
    ("asctime", "color_message", "message", "taskName")
)


class logged_with(AbstractContextManager[None]):
    """Within the block, and in tasks started in it, these ids and those of the blocks around it.

    A class, since two generators take a hundredth of the CPU of a plain turn.
    """

    __slots__ = ("_ids", "_token")

    def __init__(self, **ids: str) -> None:
        self._ids = ids

    def __enter__(self) -> None:
        around = _ids.get()
        self._token = _ids.set({**around, **self._ids} if around else self._ids)

    def __exit__(self, *exc_info: object) -> None:
        _ids.reset(self._token)


def logged_id(name: str) -> str | None:
    """One of the ids of the blocks around."""
    return _ids.get().get(name)


def log_ids() -> dict[str, str]:
    """What belongs on a log line that is written now."""
    ids = dict(_ids.get())
    context = get_current_span().get_span_context()
    if context.is_valid:
        ids["trace_id"] = f"{context.trace_id:032x}"
        ids["span_id"] = f"{context.span_id:016x}"
    return ids


LINES_DROPPED = Instrument(
    "teal.log.lines_dropped",
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


def dropped_lines() -> Readings:
    return [
        (LINES_DROPPED, ("unread",), COUNTS.unread),
        (LINES_DROPPED, ("repeated",), COUNTS.repeated),
    ]


class LineWriter:
    """Writes lines to standard error or output, in a thread of its own.

    A pipe that is not read fills up, and then a write to it never returns. `put` never waits: what
    cannot be written waits in a bounded queue, and beyond that is dropped and counted. `notice`
    makes the line that says how many were dropped.
    """

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
    """One line, or none if it cannot be written within `CLOSING_SECONDS`."""
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


class SentLogs(logging.Handler):
    """Sends entries to a collector: message and facts, and of an error only its type."""

    def __init__(self, provider: LoggerProvider, redactor: Redactor) -> None:
        super().__init__()
        self._provider = provider
        self._redactor = redactor

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] in SENDERS:
            return
        levels = (number for least, number in SEVERITIES if record.levelno >= least)
        severity = next(levels, SeverityNumber.DEBUG)
        self._provider.get_logger(record.name).emit(
            timestamp=int(record.created * 1_000_000) * 1_000,
            severity_number=severity,
            severity_text=record.levelname,
            body=self._redactor.text(record.getMessage()),
            attributes=self._facts(record),
        )

    def _facts(self, record: logging.LogRecord) -> dict[str, str | bool | int | float]:
        facts: dict[str, object] = {**log_ids(), **extras(record)}
        if record.exc_info and record.exc_info[0] is not None:
            facts["exception.type"] = record.exc_info[0].__name__
        return {
            name: cleaned
            for name, value in facts.items()
            if name not in KEPT_HERE and (cleaned := self._redactor.fact(name, value)) is not None
        }


def extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in PLAIN}
