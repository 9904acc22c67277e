"""Logs on standard error: one line an entry, for people or as JSON for machines.

No line has a known secret in it. The text of an error may hold anything, so it is only written at
the level debug. Code that logs never waits for the reader of the log. A message that is repeated
very often, as a client can cause it, is not written each time.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import TextIO

from sk_agents.config.settings import LogFormat
from sk_agents.redaction import Redactor
from sk_agents.telemetry.logs import COUNTS, LineWriter, extras, log_ids

logger = logging.getLogger(__name__)

# They log every request that they send, and MCP's every message.
TALKATIVE = ("httpx", "httpx2", "httpcore", "mcp")

# Each of its lines is an event of its own, which an operator may have to account for.
EVERY_LINE = {"sk_agents.telemetry.run_logs"}

# How each line of `JsonFormatter` begins.
JSON_ENTRY = '{"time": "'

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class _RedactingFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor, *, with_texts: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redactor = redactor
        self._with_texts = with_texts


class TextFormatter(_RedactingFormatter):
    """Appends what the call passed as `extra` and the ids of request and run, as `key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        if record.exc_text:
            # Another handler has left it there, with the text of the exception.
            record = copy(record)
            record.exc_text = None
        return self._redactor.text(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        facts = (
            f" {key}={self._redactor.fact(key, value)!r}"
            for key, value in {**extras(record), **log_ids(), **extras(record)}.items()
        )
        return super().formatMessage(record) + "".join(facts)

    def formatException(self, ei: ExcInfo) -> str:
        if self._with_texts or ei[0] is None:
            return super().formatException(ei)
        frames = "".join(traceback.format_tb(ei[2]))
        return f"Traceback (most recent call last):\n{frames}{ei[0].__name__}"


class JsonFormatter(_RedactingFormatter):
    """One object a line: time, level, logger, message, the ids of request and run, the facts."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        facts = {**log_ids(), **extras(record), **self._error(record)}
        entry = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redactor.text(record.getMessage()),
            **{name: self._redactor.fact(name, value) for name, value in facts.items()},
        }
        return json.dumps(entry, ensure_ascii=False)

    def _error(self, record: logging.LogRecord) -> dict[str, str]:
        if not record.exc_info or record.exc_info[0] is None:
            return {}
        kind, error, frames = record.exc_info
        found = {"exception": kind.__name__, "stack": "".join(traceback.format_tb(frames))}
        if self._with_texts:
            found["exception_text"] = str(error)
        return found


FORMATTERS = {"text": TextFormatter, "json": JsonFormatter}
# At most this many lines of one message in a period; those beyond are only counted.
MAX_REPEATS = 100
PERIOD_SECONDS = 10.0
# At most this many different messages are counted at once.
MAX_MESSAGES = 1_000


class QueuedHandler(logging.Handler):
    """Formats at once, in the context of the caller. A `LineWriter` writes the line."""

    def __init__(self, stream: TextIO, *, is_limited: bool) -> None:
        super().__init__()
        self._writer = LineWriter(stream, self._notice)
        self._limit = RepeatLimit() if is_limited else None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._limit is not None and record.name not in EVERY_LINE:
                if not self._limit.admit((record.name, record.levelno, str(record.msg))):
                    return
                for message, number in self._limit.taken_omissions():
                    text = f"left out {number} more in the last {PERIOD_SECONDS:g} s: {message}"
                    self._writer.put(self._line(text))
            self._writer.put(self.format(record))
        except Exception:
            self.handleError(record)

    def write(self, line: str) -> None:
        """A line that is whole already."""
        self._writer.put(line)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:
        """Python's own method writes to standard error, and that may wait."""
        self._writer.put(self._line(f"a line of {record.name} could not be written"))

    def _notice(self, dropped: int) -> str:
        return self._line(f"{dropped} lines dropped: they were not read in time")

    def _line(self, text: str) -> str:
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)
        return self.format(record)


class RepeatLimit:
    """Counts how often each message was written in this period. What it remembers is bounded."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._seen: Counter[tuple[str, int, str]] = Counter()
        self._omitted: list[tuple[str, int]] = []

    def admit(self, message: tuple[str, int, str]) -> bool:
        """Whether this one is to be written."""
        is_full = message not in self._seen and len(self._seen) >= MAX_MESSAGES
        if is_full or self._clock() - self._began > PERIOD_SECONDS:
            self._start_period()
        self._seen[message] += 1
        if self._seen[message] > MAX_REPEATS:
            COUNTS.repeated += 1
            return False
        return True

    def taken_omissions(self) -> Sequence[tuple[str, int]]:
        """Messages that were left out in earlier periods, and how often. Each is returned once."""
        taken, self._omitted = self._omitted, []
        return taken

    def _start_period(self) -> None:
        self._began = self._clock()
        self._omitted += [
            (message, number - MAX_REPEATS)
            for (_, _, message), number in self._seen.items()
            if number > MAX_REPEATS
        ]
        self._seen.clear()


def configure_logs(
    level: str,
    log_format: LogFormat = "text",
    *,
    secrets: Iterable[str] = (),
) -> QueuedHandler:
    """Set how logs are written; `secrets` are values that must not appear."""
    root = logging.getLogger()
    for old in root.handlers:
        if isinstance(old, QueuedHandler):
            old.close()
    handler = QueuedHandler(sys.stderr, is_limited=level != "debug")
    formatter = FORMATTERS[log_format]
    handler.setFormatter(formatter(Redactor.of(secrets), with_texts=level == "debug"))
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if root.level > logging.DEBUG:
        # Its start and stop messages repeat the ready line.
        logging.getLogger("uvicorn").setLevel(max(root.level, logging.WARNING))
        for name in TALKATIVE:
            logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    return handler


def log_what_python_prints() -> None:
    """Log warnings and errors that no code can catch; Python would print them itself."""
    logging.captureWarnings(True)
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_of_thread


def _log_unraisable(found: sys.UnraisableHookArgs) -> None:
    logger.error("an error was ignored because it could not be raised", exc_info=_exc_info(found))


def _log_of_thread(found: threading.ExceptHookArgs) -> None:
    if found.exc_type is not SystemExit:
        logger.error("an error ended a thread", exc_info=_exc_info(found))


def _exc_info(found: sys.UnraisableHookArgs | threading.ExceptHookArgs) -> ExcInfo:
    error = found.exc_value
    return (type(error), error, found.exc_traceback) if error is not None else (None, None, None)
