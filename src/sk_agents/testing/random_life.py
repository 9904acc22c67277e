"""What may happen next in a thread: events that make sense after its log."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta

from sk_agents.engine.events import BranchChanged, Event, GrantChanged, Imported, ThreadChanged
from sk_agents.engine.models import RunStatus, ThreadStatus
from sk_agents.engine.ports import Clock
from sk_agents.testing import commits

VERBS = (
    *("start", "queue", "next", "end", "drop"),
    *("ask", "cancel", "branch", "root", "label", "think", "import", "grant", "revoke"),
)


class Life:
    """Turns verbs into events, with names never used before. `asked` are all approvals so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self.asked: list[str] = []

    def new(self, what: str) -> str:
        return f"{what}-{next(self._numbers)}"

    def events(self, log: Sequence[Event], verbs: Sequence[str]) -> list[Event]:
        """One event for each verb that makes sense after this log and the verbs before it."""
        made: list[Event] = []
        for verb in verbs:
            active, queue = unfinished([*log, *made])
            made.extend(self._boundary(verb, active, queue) or self._step(verb, active))
        return made

    def _boundary(self, verb: str, active: str | None, queue: list[str]) -> list[Event]:
        match verb:
            case "start" if active is None:
                return [commits.run_started(self.new("run"))]
            case "queue":
                return [commits.run_queued(self.new("run"))]
            case "next" if active is None and queue:
                return [commits.run_started(queue[0]).model_copy(update={"message": None})]
            case "end" if active is not None:
                return [commits.run_ended(active)]
            case "drop" if queue:
                return [commits.run_ended(queue[-1], RunStatus.CANCELLED)]
        return []

    def _step(self, verb: str, active: str | None) -> list[Event]:
        name = self.new(verb)
        odd = len(name) % 2
        match verb:
            case "ask":
                self.asked.append(name)
                due_at = self._clock.now() + timedelta(hours=1) if len(self.asked) % 2 else None
                return [commits.approval(name, active or "run-0", due_at=due_at)]
            case "cancel":
                return [commits.cancel_requested(active or "run-0")]
            case "branch" | "root":
                return [BranchChanged(head_run=name if verb == "branch" else None)]
            case "label":
                return [ThreadChanged(metadata={"title": name, "seen": None if odd else True})]
            case "think":
                return [commits.thought(name)]
            case "import":
                return [Imported(status=ThreadStatus.FAILED if odd else None)]
            case "grant" | "revoke":
                granted = verb == "grant"
                return [GrantChanged(grant_id="g", tool="t", scope="thread", granted=granted)]
        return []


def unfinished(log: Sequence[Event]) -> tuple[str | None, list[str]]:
    """The run under way, if any, and those in the queue."""
    runs: dict[str, bool] = {}
    for event in log:
        if event.type in ("run_queued", "run_started"):
            runs[event.run_id] = event.type == "run_started"
        elif event.type == "run_ended":
            runs.pop(event.run_id, None)
    active = next((run_id for run_id, started in runs.items() if started), None)
    return active, [run_id for run_id, started in runs.items() if not started]
