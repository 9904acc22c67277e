"""A run's story as the log tells it, and a telemetry to tell it to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sk_agents.config.settings import Settings
from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    Event,
    RunEnded,
    RunStarted,
    ToolFinished,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import (
    Part,
    RunStatus,
    Thread,
    ThreadStatus,
    ToolCall,
    Usage,
    UserInput,
)
from sk_agents.telemetry.telemetry import Telemetry, build_telemetry
from tests.telemetry.collector import Collector

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUN = "0d4c3b2a-0000-4000-8000-000000000001"
CALL = ToolCall(id="call-1", plugin_name="Mail", function_name="send", arguments={"to": "canary"})
AGENT = "helper"
MODELS = {AGENT: "groq/llama"}


class Story:
    """One thread with one run; what happens is told to the observer as the engine would."""

    def __init__(self, telemetry: Telemetry, run_id: str = RUN) -> None:
        self.observer = telemetry.observer
        self.state = ThreadState()
        self.run_id = run_id
        self.at = NOON
        self.thread = Thread(
            thread_id="thread-1",
            user_id="canary-user",
            session_id="session-1",
            wire_id="",
            surface="chats",
            agent=AGENT,
            status=ThreadStatus.RUNNING,
            runnable=True,
            epoch=1,
            owner="me",
            next_seq=1,
            active_run=run_id,
            head_run=run_id,
            queued=0,
            recoveries=0,
            metadata={},
            created_at=NOON,
            updated_at=NOON,
        )

    @property
    def run(self) -> Run:
        return self.state.run(self.run_id)

    def commit(self, *events: Event, seconds: float = 1.0) -> None:
        self.at += timedelta(seconds=seconds)
        dated = []
        for event in events:
            update = {"seq": self.state.next_seq, "at": self.at, "run_id": self.run_id}
            dated.append(event.model_copy(update=update))
            self.state.apply(dated[-1])
        self.observer.stored(self.thread, self.state, dated)

    def begin(self) -> None:
        message = UserInput(parts=(Part(content="canary-question"),))
        self.commit(RunStarted(message=message))

    def ask_model(self) -> None:
        with self.observer.model_call(self.thread, self.run, AGENT, 1) as replied:
            replied(Usage(prompt_tokens=7, completion_tokens=2), "stop", None)

    def ask_for_approval(self) -> None:
        self.commit(
            ToolProposed(
                round=1,
                call_id=CALL.id,
                plugin_name="Mail",
                function_name="send",
                arguments=CALL.arguments,
            ),
            ApprovalRequested(
                approval_id="approval-1", call_id=CALL.id, digest="d", shown={"x": "canary"}
            ),
        )

    def approve(self, seconds: float = 60.0) -> None:
        decided = ApprovalDecided(
            approval_id="approval-1",
            call_id=CALL.id,
            outcome="approved",
            by="human",
            decided_by="canary-user",
        )
        self.commit(decided, seconds=seconds)

    def use_tool(self) -> None:
        self.commit(ToolStarted(call_id=CALL.id, approval_id="approval-1"))
        with self.observer.tool_call(self.thread, self.run, AGENT, CALL) as ended:
            ended("ok")
        self.commit(ToolFinished(call_id=CALL.id, result="canary-result"))

    def end(self) -> None:
        usage = Usage(prompt_tokens=14, completion_tokens=4)
        self.commit(
            Answered(content="canary-answer"), RunEnded(status=RunStatus.COMPLETED, usage=usage)
        )

    def tell_whole(self) -> None:
        self.begin()
        with self.observer.driving(self.thread, self.state):
            self.ask_model()
            self.ask_for_approval()
        self.approve()
        with self.observer.driving(self.thread, self.state):
            self.use_tool()
            self.ask_model()
            self.end()


def telemetry_for(**settings: Any) -> Telemetry:
    built = build_telemetry(Settings(**settings), MODELS)
    assert built is not None
    return built


@asynccontextmanager
async def sending(collector: Collector, **settings: Any) -> AsyncIterator[Telemetry]:
    """All has been sent when the block is left."""
    endpoint = collector.url
    async with telemetry_for(
        telemetry_enabled=True, otel_endpoint=endpoint, **settings
    ) as telemetry:
        yield telemetry
