"""What a server logs of runs, whether anything else is measured or not.

Every line that is written while a run is driven has its ids. Every execution of a tool is one line.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager

from sk_agents.engine.defaults import NoObserver
from sk_agents.engine.events import Event, ToolFinished, ToolOutcomeUnknown
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import Thread
from sk_agents.telemetry.logs import logged_id, logged_with

logger = logging.getLogger(__name__)


class RunLogs(NoObserver):
    """The engine's `Observer` of a server that measures nothing."""

    def correlation_id(self) -> str | None:
        return logged_id("correlation_id")

    def stored(self, thread: Thread, state: ThreadState, events: Sequence[Event]) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        for event in events:
            if isinstance(event, (ToolFinished, ToolOutcomeUnknown)):
                log_execution(thread, state.runs[event.run_id], event)

    def driving(self, thread: Thread, state: ThreadState) -> AbstractContextManager[None]:
        return logged_with(**ids_of(thread, state.run(state.active_run or "")))


def ids_of(thread: Thread, run: Run) -> dict[str, str]:
    """What belongs on every line about a run."""
    ids = {"thread_id": thread.thread_id, "run_id": run.run_id}
    if thread.wire_id:
        ids["chat_id"] = thread.wire_id
    if run.correlation_id is not None:
        ids["correlation_id"] = run.correlation_id
    return ids


def log_execution(thread: Thread, run: Run, event: ToolFinished | ToolOutcomeUnknown) -> None:
    """One line for a call that was begun, when it has ended; none for one that never ran."""
    call = run.calls.get(event.call_id)
    started = call.started if call is not None else None
    if call is None or started is None:
        return
    if isinstance(event, ToolFinished) and event.by == "human":
        return  # What a person said of a call whose line was written when it was lost.
    logger.info(
        "tool executed",
        extra={
            **ids_of(thread, run),
            "user_id": thread.user_id,
            "agent": run.agent or thread.agent,
            "tool": call.wanted.name,
            "call_id": event.call_id,
            "digest": started.digest,
            "outcome": event.outcome if isinstance(event, ToolFinished) else "unknown",
            "seconds": round((event.at - started.at).total_seconds(), 3),
        },
    )
