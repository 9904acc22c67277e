"""One request as far as its events tell: what it waits for, and what became of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sk_agents.engine.calls.call import Approval, Call, apply_to_calls
from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    Cancelled,
    CancelRequested,
    Event,
    Failed,
    LateResult,
    RunEnded,
    ToolFinished,
    ToolOutcomeUnknown,
    ToolProposed,
    ToolStarted,
)
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import RunStatus, Usage


@dataclass(slots=True)
class Progress:
    """`pause` is where the last question was asked, `pauses` how many times it came to that.

    Questions asked before any of them was answered belong to one pause, so deciding some of them
    leaves the pause what it is, and a new question never hides in an old one.
    """

    calls: dict[str, Call] = field(default_factory=dict)
    answer: Answered | None = None
    failure: Failed | None = None
    cancelled: Cancelled | None = None
    ended: RunStatus | None = None
    usage: Usage = Usage()
    pause: int = 0
    pauses: int = 0
    _is_stopping: bool = False
    _was_answered: bool = True

    @classmethod
    def of(cls, run: Run) -> Progress:
        """Of a run that has ended: there is no question any more that was asked anywhere."""
        return cls(
            run.calls,
            run.answer,
            run.failure,
            run.cancelled,
            run.phase,
            run.usage,
            _is_stopping=run.cancel_requested is not None,
        )

    def take(self, event: Event) -> None:
        match event:
            case ApprovalRequested():
                self.pauses += self._was_answered
                self._was_answered, self.pause = False, event.seq
                apply_to_calls(self.calls, event)
            case ApprovalDecided():
                self._was_answered = True
                apply_to_calls(self.calls, event)
            case ToolProposed() | ToolStarted() | ToolFinished() | ToolOutcomeUnknown():
                apply_to_calls(self.calls, event)
            case LateResult():
                apply_to_calls(self.calls, event)
            case Answered():
                self.answer = event
            case Failed():
                self.failure = event
            case Cancelled():
                self.cancelled = event
            case CancelRequested():
                self._is_stopping = True
            case RunEnded():
                self.ended, self.usage = RunStatus(event.status), event.usage
            case _:
                pass

    @property
    def is_waiting(self) -> bool:
        """Every call without a result waits for a person, and nobody has asked to stop."""
        unresolved = [call for call in self.calls.values() if call.finished is None]
        return bool(unresolved) and not self._is_stopping and all(c.waits for c in unresolved)

    @property
    def status(self) -> RunStatus:
        if self.ended is not None:
            return self.ended
        return RunStatus.WAITING if self.is_waiting else RunStatus.RUNNING

    @property
    def is_rejected(self) -> bool:
        """It was stopped by a person's no to one of its calls, not by anybody's wish to stop it."""
        if self.status is not RunStatus.CANCELLED or self._is_stopping:
            return False
        return any(
            call.finished is not None
            and (call.finished.outcome, call.finished.by) == ("refused", "human")
            for call in self.calls.values()
        )

    @property
    def waiting_calls(self) -> Iterator[tuple[Call, Approval]]:
        for call in self.calls.values():
            if call.approval is not None and call.waits:
                yield call, call.approval
