"""Log entries on their way to a collector."""

from __future__ import annotations

import logging

from opentelemetry._logs import LoggerProvider, SeverityNumber

from sk_agents.telemetry.log_ids import log_ids
from sk_agents.telemetry.redaction import Redactor

SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
)
# Whoever sends must not send what it has to say about sending.
SENDERS = ("opentelemetry", "urllib3", "requests")
PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {
    "asctime",
    "color_message",
    "message",
    "taskName",
}
"""What every entry has; anything else was passed as `extra`."""


class SentLogs(logging.Handler):
    """Sends the entry's message and facts, and of an error only its type."""

    def __init__(self, provider: LoggerProvider, redactor: Redactor) -> None:
        super().__init__()
        self._provider = provider
        self._redactor = redactor

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] in SENDERS:
            return
        self._provider.get_logger(record.name).emit(
            timestamp=int(record.created * 1_000_000) * 1_000,
            severity_number=_severity(record.levelno),
            severity_text=record.levelname,
            body=self._redactor.text(record.getMessage()),
            attributes=self._facts(record),
        )

    def _facts(self, record: logging.LogRecord) -> dict[str, str | bool | int | float]:
        facts: dict[str, object] = {**log_ids(), **extras(record)}
        if record.exc_info and record.exc_info[0] is not None:
            facts["exception.type"] = record.exc_info[0].__name__
        cleaned = {name: self._redactor.fact(name, value) for name, value in facts.items()}
        return {
            name: value
            for name, value in cleaned.items()
            if isinstance(value, str | bool | int | float)
        }


def extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in PLAIN}


def _severity(level: int) -> SeverityNumber:
    return next((number for least, number in SEVERITIES if level >= least), SeverityNumber.DEBUG)
