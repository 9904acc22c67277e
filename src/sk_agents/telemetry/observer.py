"""What the engine does, as spans and measurements.

It keeps nothing that a restart could lose: a run's span and an approval's are told when they are
over, from what the log says. Nothing here raises or waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from time import perf_counter

from opentelemetry.trace import SpanKind, get_current_span

from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    Event,
    RunEnded,
    RunQueued,
    RunStarted,
    ToolFinished,
    ToolOutcomeUnknown,
)
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import Thread, ToolCall, Usage
from sk_agents.telemetry import attributes as at
from sk_agents.telemetry import instruments
from sk_agents.telemetry.instruments import BoundedNames, Instrument, Meters, Readings
from sk_agents.telemetry.log_ids import logged_with
from sk_agents.telemetry.run_context import current_traceparent
from sk_agents.telemetry.spans import Spans

RUNS_DRIVEN = Instrument("teal.runs.driven", "teal_runs_driven", "gauge", "Runs driven here now.")
RUNS_QUEUED = Instrument(
    "teal.runs.queued", "teal_runs_queued", "gauge", "Messages waiting behind the runs driven here."
)


class TelemetryObserver:
    """The engine's `Observer`. `models` names the model of each agent."""

    def __init__(self, spans: Spans, meters: Meters, models: Mapping[str, str]) -> None:
        self._spans = spans
        self._meters = meters
        self._models = models
        self._tools = BoundedNames()
        self._driven: dict[str, ThreadState] = {}
        meters.watch(self._readings)

    def trace(self) -> str | None:
        return current_traceparent()

    def stored(self, thread: Thread, state: ThreadState, events: Sequence[Event]) -> None:
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
                logged_with(thread_id=thread.thread_id, run_id=run.run_id),
            ):
                yield
        finally:
            if self._driven.get(thread.thread_id) is state:
                del self._driven[thread.thread_id]

    @contextmanager
    def model_call(
        self, thread: Thread, run: Run, agent: str, round_number: int
    ) -> Iterator[Callable[[Usage, str], None]]:
        provider, model = at.provider_and_model(self._models.get(agent, "unknown/unknown"))
        given: at.Attributes = {
            at.OPERATION: "chat",
            at.PROVIDER: provider,
            at.SYSTEM: provider,
            at.REQUEST_MODEL: model,
            at.AGENT_NAME: agent,
            at.CONVERSATION_ID: thread.thread_id,
            at.ROUND: round_number,
            **at.run_ids(thread, run.run_id),
        }
        started, code = perf_counter(), ""
        try:
            with self._spans.current(f"chat {model}", SpanKind.CLIENT, given) as span:

                def replied(usage: Usage, finish_reason: str) -> None:
                    span.set_attribute(at.INPUT_TOKENS, usage.prompt_tokens)
                    span.set_attribute(at.OUTPUT_TOKENS, usage.completion_tokens)
                    span.set_attribute(at.FINISH_REASONS, (finish_reason,))
                    self._count_tokens(usage, provider, model)

                yield replied
        except BaseException as error:
            code = at.error_code(error)
            raise
        finally:
            seconds = perf_counter() - started
            labels = ("chat", provider, model, code)
            self._meters.record(instruments.MODEL_CALLS, seconds, *labels)

    @contextmanager
    def tool_call(
        self, thread: Thread, run: Run, agent: str, call: ToolCall
    ) -> Iterator[Callable[[str], None]]:
        given: at.Attributes = {
            at.OPERATION: "execute_tool",
            at.TOOL_NAME: call.name,
            at.TOOL_CALL_ID: call.id,
            at.AGENT_NAME: agent,
            at.CONVERSATION_ID: thread.thread_id,
            **at.run_ids(thread, run.run_id),
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
            case RunQueued() | CancelRequested():
                self._name_request(thread, run)
            case RunStarted():
                self._name_request(thread, run)
                self._meters.record(instruments.RUNS_STARTED, 1, at.agent_name(thread, run))
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
        """On the request that did this; inside a run there is none, and this does nothing."""
        get_current_span().set_attributes(at.run_ids(thread, run.run_id))

    def _note_end(self, thread: Thread, run: Run, event: RunEnded) -> None:
        agent = at.agent_name(thread, run)
        seconds = _seconds(run.created_at, event.at)
        self._meters.record(instruments.RUNS_ENDED, seconds, agent, event.status)
        given: at.Attributes = {
            at.OPERATION: "invoke_agent",
            at.AGENT_NAME: agent,
            at.CONVERSATION_ID: thread.thread_id,
            at.RUN_STATUS: event.status.value,
            at.INPUT_TOKENS: event.usage.prompt_tokens,
            at.OUTPUT_TOKENS: event.usage.completion_tokens,
            **at.run_ids(thread, run.run_id),
        }
        self._spans.tell_run(run, f"invoke_agent {agent}", given, event.at)

    def _note_decision(self, thread: Thread, run: Run, event: ApprovalDecided) -> None:
        self._meters.record(instruments.APPROVALS_DECIDED, 1, event.outcome, event.by)
        call = run.calls.get(event.call_id)
        approval = call.approval if call is not None else None
        if approval is None or (event.outcome, event.by) == ("withdrawn", "policy"):
            # Policy takes back only what was decided before: its wait has been told.
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
        self._spans.tell_wait(run, f"approval {request.kind}", given, request.at, event.at)

    def _count_tokens(self, usage: Usage, provider: str, model: str) -> None:
        self._meters.record(instruments.MODEL_TOKENS, usage.prompt_tokens, "input", provider, model)
        self._meters.record(
            instruments.MODEL_TOKENS, usage.completion_tokens, "output", provider, model
        )

    def _readings(self) -> Readings:
        driven = list(self._driven.values())
        yield RUNS_DRIVEN, (), len(driven)
        yield RUNS_QUEUED, (), sum(len(state.queue) for state in driven)


def _seconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())
