"""Which trace a run belongs to, from the run alone.

A run may be driven by several processes, one after the other. All of them must hang what they do
under the same span, and one of them tells that span when the run has ended. So its id is made from
the run's, and its trace is the one the run was started in, which the log keeps.
"""

from __future__ import annotations

import re
from hashlib import sha256

from opentelemetry.trace import SpanContext, TraceFlags, get_current_span

from sk_agents.engine.log.state import Run

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def current_traceparent() -> str | None:
    """The place in a trace where the caller is, as W3C's header; `None` outside any trace."""
    context = get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def started_in(run: Run) -> SpanContext | None:
    """What the run was started by; `None` if that belonged to no trace."""
    found = _TRACEPARENT.fullmatch(run.trace or "")
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None


def run_context(run: Run) -> SpanContext:
    """The run's own span: the same for every process, known before it is told."""
    digest = sha256(f"run {run.run_id}".encode()).digest()
    parent = started_in(run)
    return SpanContext(
        parent.trace_id if parent is not None else int.from_bytes(digest[8:24]),
        int.from_bytes(digest[:8]),
        is_remote=True,
        trace_flags=parent.trace_flags if parent is not None else TraceFlags(TraceFlags.SAMPLED),
    )
