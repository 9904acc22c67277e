"""The ids that every log line of a request or a run carries, whoever writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from opentelemetry.trace import get_current_span

_NONE: Mapping[str, str] = MappingProxyType({})
_ids: ContextVar[Mapping[str, str]] = ContextVar("log_ids", default=_NONE)


@contextmanager
def logged_with(**ids: str) -> Iterator[None]:
    """Within the block, and in tasks started in it, these ids and those of the blocks around it."""
    token = _ids.set({**_ids.get(), **ids})
    try:
        yield
    finally:
        _ids.reset(token)


def log_ids() -> dict[str, str]:
    """What belongs on a log line that is written now."""
    ids = dict(_ids.get())
    context = get_current_span().get_span_context()
    if context.is_valid:
        ids["trace_id"] = f"{context.trace_id:032x}"
        ids["span_id"] = f"{context.span_id:016x}"
    return ids
