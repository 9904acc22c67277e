"""What the engine and the server do, as spans and measurements.

Nothing is kept that a restart could lose: the spans of a run and of an approval are recorded when
they are over, from the log. Nothing here raises or waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from time import perf_counter

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    Event,
    RunEnded,
    RunQueued,
    RunStarted,
    Steered,
    ToolFinished,
    ToolOutcomeUnknown,
)
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import Thread, ToolCall, Usage
from sk_agents.telemetry import instruments
from sk_agents.telemetry import spans as at
from sk_agents.telemetry.logs import logged_with
from sk_agents.telemetry.run_logs import RunLogs, ids_of
from sk_agents.telemetry.spans import Spans, current_traceparent, mark_failed

RUNS_DRIVEN = instruments.Instrument("teal.runs.driven", "gauge", "Runs driven here now.")
RUNS_QUEUED = instruments.Instrument(
    "teal.runs.queued", "gauge", "Messages waiting behind the runs driven here."
)
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"))
NO_ROUTE = "none"
# The client was gone before there was an answer.
NO_STATUS = "none"
_PROPAGATOR = TraceContextTextMapPropagator()


class TelemetryObserver(RunLogs):
    """The engine's `Observer`. `models` names the model of each agent, `addresses` the URL at which
    it is asked."""

    def __init__(
        self,
        spans: Spans,
        meters: instruments.Meters,
        models: Mapping[str, str],
        addresses: Mapping[str, str],
    ) -> None:
        self._servers = {agent: at.server_of(url) for agent, url in addresses.items()}
        self._spans = spans
        self._meters = meters
        self._models = models
        self._tools = instruments.BoundedNames()
        self._driven: dict[str, ThreadState] = {}
        meters.watch(self._readings)

    def trace(self) -> str | None:
        return current_traceparent()

    def stored(self, thread: Thread, state: ThreadState, events: Sequence[Event]) -> None:
        super().stored(thread, state, events)
        for event in events:
            run = state.runs.get(event.run_id)
            if run is not None:
                self._note(thread, run, event)

    def recovered(self) -> None:
        self._meters.record(instruments.RECOVERIES, 1)

    @contextmanager
    def driving(self, thread: Thread, state: ThreadState) -> Iterator[None]:
        run = state.run(state.active_run or "")
        self._driven[thread.thread_id] = state
        try:
            with (
                self._spans.belonging_to(run),
                logged_with(**ids_of(thread, run)),
            ):
                yield
        finally:
            if self._driven.get(thread.thread_id) is state:
                del self._driven[thread.thread_id]

    @contextmanager
    def model_call(
        self, thread: Thread, run: Run, agent: str, round_number: int
    ) -> Iterator[Callable[[Usage, str, str | None], None]]:
        provider, model = at.provider_and_model(self._models.get(agent, "unknown/unknown"))
        given: at.Attributes = {
            **at.operation("chat", agent, thread, run.run_id),
            at.PROVIDER: provider,
            at.SYSTEM: provider,
            at.REQUEST_MODEL: model,
            at.ROUND: round_number,
            **self._servers.get(agent, {}),
        }
        started, code = perf_counter(), ""
        try:
            with self._spans.current(f"chat {model}", SpanKind.CLIENT, given) as span:

                def replied(usage: Usage, finish_reason: str, answered: str | None) -> None:
                    used = {"input": usage.prompt_tokens, "output": usage.completion_tokens}
                    span.set_attribute(at.INPUT_TOKENS, used["input"])
                    span.set_attribute(at.OUTPUT_TOKENS, used["output"])
                    span.set_attribute(at.FINISH_REASONS, (finish_reason,))
                    span.set_attribute(at.RESPONSE_MODEL, answered or model)
                    for kind, count in used.items():
                        labels = (kind, provider, model)
                        self._meters.record(instruments.MODEL_TOKENS, count, *labels)

                yield replied
        except BaseException as error:
            code = at.error_code(error)
            raise
        finally:
            seconds, labels = perf_counter() - started, ("chat", provider, model, code)
            self._meters.record(instruments.MODEL_CALLS, seconds, *labels)

    @contextmanager
    def tool_call(
        self, thread: Thread, run: Run, agent: str, call: ToolCall
    ) -> Iterator[Callable[[str], None]]:
        given: at.Attributes = {
            **at.operation("execute_tool", agent, thread, run.run_id),
            at.TOOL_NAME: call.name,
            at.TOOL_CALL_ID: call.id,
        }
        started, outcome = perf_counter(), "cancelled"
        try:
            with self._spans.current(f"execute_tool {call.name}", SpanKind.INTERNAL, given) as span:

                def ended(how: str) -> None:
                    nonlocal outcome
                    outcome = how
                    span.set_attribute(at.OUTCOME, how)
                    if how != "ok":
                        span.set_attribute(at.ERROR_TYPE, f"tool_{how}")

                yield ended
        finally:
            seconds, name = perf_counter() - started, self._tools.of(call.name)
            self._meters.record(instruments.TOOL_CALLS, seconds, name, outcome)

    def _note(self, thread: Thread, run: Run, event: Event) -> None:
        match event:
            case RunQueued() | CancelRequested() | Steered():
                self._name_request(thread, run)
            case RunStarted():
                self._name_request(thread, run)
                self._meters.record(instruments.RUNS_STARTED, 1, run.agent or thread.agent)
            case RunEnded():
                self._note_end(thread, run, event)
            case ToolFinished():
                self._meters.record(instruments.TOOL_RESULTS, 1, event.outcome)
            case ToolOutcomeUnknown():
                self._meters.record(instruments.TOOL_RESULTS, 1, "unknown")
            case ApprovalRequested():
                self._meters.record(instruments.APPROVALS_REQUESTED, 1, event.kind)
            case ApprovalDecided():
                self._name_request(thread, run)
                self._note_decision(thread, run, event)
            case _:
                pass

    def _name_request(self, thread: Thread, run: Run) -> None:
        """On the span of the request that did this; inside a run there is none."""
        get_current_span().set_attributes(at.run_ids(thread, run.run_id))

    def _note_end(self, thread: Thread, run: Run, event: RunEnded) -> None:
        agent = run.agent or thread.agent
        seconds = _seconds(run.created_at, event.at)
        self._meters.record(instruments.RUNS_ENDED, seconds, agent, event.status)
        given: at.Attributes = {
            **at.operation("invoke_agent", agent, thread, run.run_id),
            at.RUN_STATUS: event.status.value,
            at.INPUT_TOKENS: event.usage.prompt_tokens,
            at.OUTPUT_TOKENS: event.usage.completion_tokens,
        }
        self._spans.record_run(run, f"invoke_agent {agent}", given, event.at)

    def _note_decision(self, thread: Thread, run: Run, event: ApprovalDecided) -> None:
        self._meters.record(instruments.APPROVALS_DECIDED, 1, event.outcome, event.by)
        call = run.calls.get(event.call_id)
        approval = call.approval if call is not None else None
        if approval is None or (event.outcome, event.by) == ("withdrawn", "policy"):
            # Policy takes back only what was decided before: its wait is recorded already.
            return
        request = approval.request
        seconds = _seconds(request.at, event.at)
        self._meters.record(instruments.APPROVAL_WAITS, seconds, event.outcome)
        given: at.Attributes = {
            at.TOOL_CALL_ID: event.call_id,
            at.APPROVAL_ID: event.approval_id,
            at.APPROVAL_KIND: request.kind,
            at.OUTCOME: event.outcome,
            at.DECIDED_BY: event.by,
            **at.run_ids(thread, run.run_id),
        }
        self._spans.record_wait(run, f"approval {request.kind}", given, request.at, event.at)

    def _readings(self) -> instruments.Readings:
        driven = list(self._driven.values())
        yield RUNS_DRIVEN, (), len(driven)
        yield RUNS_QUEUED, (), sum(len(state.queue) for state in driven)


def _seconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())


class ServedRequest:
    """What becomes known of a request while it is served."""

    def __init__(self, meters: instruments.Meters) -> None:
        self.route: str | None = None
        self.status: int | None = None
        self.streams = False
        self._meters = meters

    def answered(self, status: int, *, is_stream: bool) -> None:
        self.status = status
        if is_stream and not self.streams:
            self.streams = True
            self._meters.record(instruments.STREAMS, 1)


class RequestObserver:
    """One span and one measurement for each request, whatever it is about."""

    def __init__(self, spans: Spans, meters: instruments.Meters) -> None:
        self._spans = spans
        self._meters = meters

    @contextmanager
    def served(
        self, method: str, trace_headers: Mapping[str, str], correlation_id: str
    ) -> Iterator[ServedRequest]:
        """Around the whole of a request; `trace_headers` are W3C's, if it had any."""
        method = method if method in METHODS else "_OTHER"
        parent = _PROPAGATOR.extract(trace_headers, Context())
        given: at.Attributes = {instruments.METHOD: method, at.CORRELATION_ID: correlation_id}
        request, started = ServedRequest(self._meters), perf_counter()
        with (
            self._spans.current(method, SpanKind.SERVER, given, parent) as span,
            logged_with(correlation_id=correlation_id),
        ):
            try:
                yield request
            except Exception:
                # An outer layer answers so.
                request.status = request.status or 500
                raise
            finally:
                if request.route is not None:
                    span.update_name(f"{method} {request.route}")
                    span.set_attribute(instruments.ROUTE, request.route)
                if request.status is not None:
                    span.set_attribute(instruments.STATUS_CODE, request.status)
                    if request.status >= 500:
                        mark_failed(span, str(request.status))
                status = str(request.status) if request.status is not None else NO_STATUS
                labels = (method, request.route or NO_ROUTE, status)
                self._meters.record(instruments.REQUESTS, perf_counter() - started, *labels)
                if request.streams:
                    self._meters.record(instruments.STREAMS, -1)
