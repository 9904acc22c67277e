"""Logs on standard error: one line an entry, its facts as `key=value`."""

from __future__ import annotations

import logging

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {
    "asctime",
    "color_message",
    "message",
    "taskName",
}


class FactsFormatter(logging.Formatter):
    """Appends what the call passed as `extra`."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        facts = "".join(
            f" {key}={value!r}" for key, value in vars(record).items() if key not in _PLAIN
        )
        return super().formatMessage(record) + facts


def configure_logs(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(FactsFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if root.level > logging.DEBUG:
        # Its start and stop messages repeat the ready line.
        logging.getLogger("uvicorn").setLevel(max(root.level, logging.WARNING))
