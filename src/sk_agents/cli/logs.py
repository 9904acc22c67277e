"""Logs on standard error: one line an entry, for people or as JSON for machines.

Neither holds a secret that is known, and the text of an error, which may hold anything, is only
written where somebody looks for faults: at the level debug.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal

from sk_agents.telemetry.log_ids import log_ids
from sk_agents.telemetry.redaction import Redactor
from sk_agents.telemetry.sent_logs import extras

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class FactsFormatter(logging.Formatter):
    """Appends what the call passed as `extra`, as `key=value`."""

    def __init__(self, redactor: Redactor, *, with_texts: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redactor = redactor
        self._with_texts = with_texts

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.text(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        facts = (
            f" {key}={self._redactor.fact(key, value)!r}" for key, value in extras(record).items()
        )
        return super().formatMessage(record) + "".join(facts)

    def formatException(self, ei: ExcInfo) -> str:
        if self._with_texts or ei[0] is None:
            return super().formatException(ei)
        frames = "".join(traceback.format_tb(ei[2]))
        return f"Traceback (most recent call last):\n{frames}{ei[0].__name__}"


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the ids of request and run, the facts."""

    def __init__(self, redactor: Redactor, *, with_texts: bool) -> None:
        super().__init__()
        self._redactor = redactor
        self._with_texts = with_texts

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
        found = {
            "exception": kind.__name__,
            "stack": "".join(traceback.format_tb(frames)),
        }
        if self._with_texts:
            found["exception_text"] = str(error)
        return found


FORMATTERS = {"text": FactsFormatter, "json": JsonFormatter}


def configure_logs(
    level: str,
    log_format: Literal["text", "json"] = "text",
    *,
    secrets: Iterable[str] = (),
) -> None:
    """Write from now on so; `secrets` are values that must not appear."""
    handler = logging.StreamHandler()
    formatter = FORMATTERS[log_format]
    handler.setFormatter(formatter(Redactor(secrets), with_texts=level == "debug"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if root.level > logging.DEBUG:
        # Its start and stop messages repeat the ready line.
        logging.getLogger("uvicorn").setLevel(max(root.level, logging.WARNING))
