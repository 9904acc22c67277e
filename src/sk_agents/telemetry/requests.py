"""One span and one measurement for each request, whatever it is about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sk_agents.telemetry import instruments
from sk_agents.telemetry.attributes import CORRELATION_ID, Attributes
from sk_agents.telemetry.instruments import METHOD, ROUTE, STATUS_CODE, Meters
from sk_agents.telemetry.log_ids import logged_with
from sk_agents.telemetry.spans import Spans, mark_failed

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"))
NO_ROUTE = "none"
# The client was gone before there was an answer.
NO_STATUS = "none"
_PROPAGATOR = TraceContextTextMapPropagator()


class ServedRequest:
    """What becomes known of a request while it is served."""

    def __init__(self, meters: Meters) -> None:
        self.route: str | None = None
        self.status: int | None = None
        self.streams = False
        self._meters = meters

    def answered(self, status: int, *, is_stream: bool) -> None:
        self.status = status
        if is_stream and not self.streams:
            self.streams = True
            self._meters.record(instruments.STREAMS, 1)


class Requests:
    def __init__(self, spans: Spans, meters: Meters) -> None:
        self._spans = spans
        self._meters = meters

    @contextmanager
    def served(
        self, method: str, trace_headers: Mapping[str, str], correlation_id: str
    ) -> Iterator[ServedRequest]:
        """Around the whole of a request; `trace_headers` are W3C's, if it had any."""
        method = method if method in METHODS else "_OTHER"
        parent = _PROPAGATOR.extract(trace_headers, Context())
        given: Attributes = {METHOD: method, CORRELATION_ID: correlation_id}
        request, started = ServedRequest(self._meters), perf_counter()
        with (
            self._spans.current(method, SpanKind.SERVER, given, parent) as span,
            logged_with(correlation_id=correlation_id),
        ):
            try:
                yield request
            except Exception:
                # Somebody further out answers so.
                request.status = request.status or 500
                raise
            finally:
                if request.route is not None:
                    span.update_name(f"{method} {request.route}")
                    span.set_attribute(ROUTE, request.route)
                if request.status is not None:
                    span.set_attribute(STATUS_CODE, request.status)
                    if request.status >= 500:
                        mark_failed(span, str(request.status))
                self._measure(method, request, perf_counter() - started)

    def _measure(self, method: str, request: ServedRequest, seconds: float) -> None:
        status = str(request.status) if request.status is not None else NO_STATUS
        labels = (method, request.route or NO_ROUTE, status)
        self._meters.record(instruments.REQUESTS, seconds, *labels)
        if request.streams:
            self._meters.record(instruments.STREAMS, -1)
