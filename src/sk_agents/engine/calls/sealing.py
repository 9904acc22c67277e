"""How a run ends before its time: every open approval withdrawn, every open call given a result.

The events of one ending belong in one commit. Afterwards the conversation can go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from sk_agents.engine.calls.call import Call
from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    Cancelled,
    Event,
    Failed,
    RunEnded,
    ToolFinished,
)
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import CallState, DecidedBy, RunStatus, Usage

_NOT_RUN: Mapping[DecidedBy | None, str] = {
    "cancel": "Not run: the user cancelled before it started.",
    None: "Not run: the run failed before it started.",
    "human": "Not run: another call of this turn was rejected.",
    "timeout": "Not run: nobody approved it in time.",
}
_UNKNOWN = "It was started, but its outcome is not known: it may or may not have taken effect."


def answered(run: Run, answer: Answered, usage: Usage) -> tuple[Event, ...]:
    return answer, RunEnded(run_id=run.run_id, status=RunStatus.COMPLETED, usage=usage)


def cancelled(
    run: Run, *, partial: str | None = None, by: Literal["cancel", "human"] = "cancel"
) -> tuple[Event, ...]:
    return (
        *sealed(run, by),
        Cancelled(run_id=run.run_id, partial=partial or None),
        RunEnded(run_id=run.run_id, status=RunStatus.CANCELLED, usage=run.usage),
    )


def failed(run: Run, *, code: str, message: str, correlation_id: str | None) -> tuple[Event, ...]:
    return (
        *sealed(run, None),
        Failed(run_id=run.run_id, code=code, message=message, correlation_id=correlation_id),
        RunEnded(run_id=run.run_id, status=RunStatus.FAILED, usage=run.usage),
    )


def sealed(run: Run, by: DecidedBy | None) -> Iterator[Event]:
    """A withdrawn approval and a result for every call that has none; nobody refused those of a run
    that failed."""
    for call in run.unresolved_calls:
        if call.waits and call.approval is not None:
            yield ApprovalDecided(
                run_id=run.run_id,
                approval_id=call.approval.request.approval_id,
                call_id=call.proposal.call_id,
                outcome="withdrawn",
                by="cancel",
            )
        yield ToolFinished(
            run_id=run.run_id,
            call_id=call.proposal.call_id,
            outcome="sealed",
            by=by,
            result=_seal(call, by),
        )


def _seal(call: Call, by: DecidedBy | None) -> str:
    if call.late_result is not None:
        return call.late_result
    started = call.state in (CallState.STARTED, CallState.UNKNOWN)
    return _UNKNOWN if started else _NOT_RUN[by]
