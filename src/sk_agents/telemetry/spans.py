"""Making spans: no text of an error, no event, only codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    NoOpTracer,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)

from sk_agents.engine.log.state import Run
from sk_agents.telemetry.attributes import ERROR_TYPE, Attributes, error_code
from sk_agents.telemetry.run_context import run_context, started_in

SetIds = Callable[[SpanContext], None]
"""The next span that is started gets these ids."""


def within(context: SpanContext) -> Context:
    """Where children of that span belong; nothing else of where we are is kept."""
    return set_span_in_context(NonRecordingSpan(context), Context())


def mark_failed(span: Span, code: str) -> None:
    span.set_attribute(ERROR_TYPE, code)
    span.set_status(Status(StatusCode.ERROR))


class Spans:
    """They go nowhere until `send_by` says how."""

    def __init__(self) -> None:
        self._tracer: Tracer = NoOpTracer()
        self._set_ids: SetIds | None = None

    def send_by(self, tracer: Tracer, set_ids: SetIds) -> None:
        self._tracer, self._set_ids = tracer, set_ids

    def send_nowhere(self) -> None:
        self._tracer, self._set_ids = NoOpTracer(), None

    @contextmanager
    def belonging_to(self, run: Run) -> Iterator[None]:
        """Whatever is done in the block is done for this run.

        Where no span will be told of the run itself, it is done for whoever started it.
        """
        context = run_context(run) if self._set_ids is not None else started_in(run)
        token = attach(within(context) if context is not None else Context())
        try:
            yield
        finally:
            detach(token)

    @contextmanager
    def current(
        self, name: str, kind: SpanKind, attributes: Attributes, parent: Context | None = None
    ) -> Iterator[Span]:
        """A span around the block; an error that leaves the block is on it, as its code."""
        span = self._tracer.start_span(name, parent, kind, attributes)
        token = attach(set_span_in_context(span, parent))
        try:
            yield span
        except BaseException as error:
            mark_failed(span, error_code(error))
            raise
        finally:
            detach(token)
            span.end()

    def tell_run(self, run: Run, name: str, attributes: Attributes, ended: datetime) -> None:
        """The span under which everything done for this run already hangs."""
        if self._set_ids is None:
            return
        parent = started_in(run)
        context = within(parent) if parent is not None else Context()
        self._set_ids(run_context(run))
        span = self._tracer.start_span(
            name, context, SpanKind.INTERNAL, attributes, start_time=nanoseconds(run.created_at)
        )
        if run.failure is not None:
            mark_failed(span, run.failure.code)
        span.end(nanoseconds(ended))

    def tell_wait(
        self, run: Run, name: str, attributes: Attributes, since: datetime, until: datetime
    ) -> None:
        """Time in which nobody worked, so no block could be around it."""
        decider = get_current_span().get_span_context()
        own = run_context(run)
        elsewhere = decider.is_valid and decider.span_id != own.span_id
        span = self._tracer.start_span(
            name,
            within(own),
            SpanKind.INTERNAL,
            attributes,
            links=[Link(decider)] if elsewhere else (),
            start_time=nanoseconds(since),
        )
        span.end(nanoseconds(until))


def nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000
