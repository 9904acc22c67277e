"""Spans: the names of their attributes, which trace a run belongs to, and making them.

The names are those of OpenTelemetry's conventions. Only ids, names from the configuration, numbers
and codes: no message, argument, header, token or text of an error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach

from sk_agents.engine.log.state import Run
from sk_agents.engine.models import Thread
from sk_agents.exceptions import TealError

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
# The name PROVIDER had before; some back-ends know only this one.
SYSTEM = "gen_ai.system"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
SESSION_ID = "session.id"
THREAD_ID = "teal.thread.id"
RUN_ID = "teal.run.id"
RUN_STATUS = "teal.run.status"
ROUND = "teal.model.round"
OUTCOME = "teal.outcome"
APPROVAL_ID = "teal.approval.id"
APPROVAL_KIND = "teal.approval.kind"
DECIDED_BY = "teal.approval.decided_by"
CORRELATION_ID = "teal.correlation_id"

# Ours on the left: the first part of a model's name.
PROVIDER_NAMES: Mapping[str, str] = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}

Attributes = dict[str, str | int | tuple[str, ...]]


def run_ids(thread: Thread, run_id: str) -> Attributes:
    ids: Attributes = {THREAD_ID: thread.thread_id, RUN_ID: run_id}
    if thread.session_id:
        ids[SESSION_ID] = thread.session_id
    return ids


def operation(name: str, agent: str, thread: Thread, run_id: str) -> Attributes:
    return {
        OPERATION: name,
        AGENT_NAME: agent,
        CONVERSATION_ID: thread.wire_id or thread.thread_id,
        **run_ids(thread, run_id),
    }


def server_of(url: str | None) -> Attributes:
    """Where a model is asked, as the conventions name it."""
    parts = urlsplit(url or "")
    if parts.hostname is None:
        return {}
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    found: Attributes = {SERVER_ADDRESS: parts.hostname}
    return found if port is None else {**found, SERVER_PORT: port}


def provider_and_model(name: str) -> tuple[str, str]:
    """`groq/llama` is groq's llama; a bare name is asked for in OpenAI's words."""
    provider, slash, model = name.partition("/")
    if not slash:
        return "openai", name
    return PROVIDER_NAMES.get(provider, provider), model


def error_code(error: BaseException) -> str:
    """A short stable word: the text of an error may hold anything."""
    match error:
        case TealError():
            return error.code
        case asyncio.CancelledError() | GeneratorExit():
            return "cancelled"
        case _:
            return type(error).__name__


_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def current_traceparent() -> str | None:
    """The place in a trace where the caller is, as W3C's header; `None` outside any trace."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def started_in(run: Run) -> trace.SpanContext | None:
    """The span that the run was started in; `None` if there was none."""
    found = _TRACEPARENT.fullmatch(run.trace or "")
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    context = trace.SpanContext(trace_id, span_id, True, trace.TraceFlags(flags))
    return context if context.is_valid else None


def run_context(run: Run) -> trace.SpanContext:
    """The run's own span.

    Several processes may drive a run, one after the other. What they do belongs under one span,
    which is only recorded when the run has ended. So its id is made from the run's, and its trace
    is the one the run was started in, which the log keeps.
    """
    digest, parent = sha256(f"run {run.run_id}".encode()).digest(), started_in(run)
    span_id, trace_id = int.from_bytes(digest[:8]), int.from_bytes(digest[8:24])
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    if parent is not None:
        trace_id, flags = parent.trace_id, parent.trace_flags
    return trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)


SetIds = Callable[[trace.SpanContext], None]
"""The next span that is started gets these ids."""


def within(context: trace.SpanContext) -> Context:
    """The context of that span's children; nothing of the present context is kept."""
    return trace.set_span_in_context(trace.NonRecordingSpan(context), Context())


def mark_failed(span: trace.Span, code: str) -> None:
    span.set_attribute(ERROR_TYPE, code)
    span.set_status(trace.Status(trace.StatusCode.ERROR))


class Spans:
    """They go nowhere until `send_by` says how."""

    def __init__(self) -> None:
        self._tracer: trace.Tracer = trace.NoOpTracer()
        self._set_ids: SetIds | None = None

    def send_by(self, tracer: trace.Tracer, set_ids: SetIds) -> None:
        self._tracer, self._set_ids = tracer, set_ids

    def send_nowhere(self) -> None:
        self._tracer, self._set_ids = trace.NoOpTracer(), None

    @contextmanager
    def belonging_to(self, run: Run) -> Iterator[None]:
        """What is done in the block belongs to this run.

        While no spans are sent, there will be none of the run: it belongs to what started the run.
        """
        context = run_context(run) if self._set_ids is not None else started_in(run)
        token = attach(within(context) if context is not None else Context())
        try:
            yield
        finally:
            detach(token)

    @contextmanager
    def current(
        self, name: str, kind: trace.SpanKind, attributes: Attributes, parent: Context | None = None
    ) -> Iterator[trace.Span]:
        """A span around the block; an error that leaves the block is on it, as its code."""
        span = self._tracer.start_span(name, parent, kind, attributes)
        token = attach(trace.set_span_in_context(span, parent))
        try:
            yield span
        except BaseException as error:
            mark_failed(span, error_code(error))
            raise
        finally:
            detach(token)
            span.end()

    def record_run(self, run: Run, name: str, attributes: Attributes, ended: datetime) -> None:
        """The span that everything done for this run already belongs to."""
        if self._set_ids is None:
            return
        parent = started_in(run)
        context = within(parent) if parent is not None else Context()
        self._set_ids(run_context(run))
        span = self._tracer.start_span(
            name, context, attributes=attributes, start_time=nanoseconds(run.created_at)
        )
        if run.failure is not None:
            mark_failed(span, run.failure.code)
        span.end(nanoseconds(ended))

    def record_wait(
        self, run: Run, name: str, attributes: Attributes, since: datetime, until: datetime
    ) -> None:
        """Time in which nothing ran, so that no block could be around it."""
        decider = trace.get_current_span().get_span_context()
        own = run_context(run)
        elsewhere = decider.is_valid and decider.span_id != own.span_id
        span = self._tracer.start_span(
            name,
            within(own),
            attributes=attributes,
            links=[trace.Link(decider)] if elsewhere else (),
            start_time=nanoseconds(since),
        )
        span.end(nanoseconds(until))


def nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000
