"""A part of a conversation that is too long to be shown whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sk_agents.engine.events import (
    BranchChanged,
    Compacted,
    Event,
    GrantChanged,
    RunQueued,
    RunStarted,
)
from sk_agents.engine.log.state import ThreadState


@dataclass(slots=True)
class Window:
    """What a part of a log tells about the runs that began in it.

    `cut` names for a run that follows an older one, which is not here, that older one. What older
    runs and grants still have to say is left out.
    """

    state: ThreadState = field(default_factory=ThreadState)
    cut: dict[str, str] = field(default_factory=dict)

    def parent(self, run_id: str) -> str | None:
        """The run that this one follows, here or not."""
        return self.cut.get(run_id) or self.state.run(run_id).parent_run


def window_of(events: Iterable[Event]) -> Window:
    window = Window()
    state = window.state
    for event in events:
        match event:
            case RunStarted(message=None) if event.run_id not in state.runs:
                continue
            case RunStarted(parent_run=str(parent)) if parent not in state.runs:
                window.cut[event.run_id] = parent
                event = event.model_copy(update={"parent_run": None})
            case BranchChanged() if event.head_run is None or event.head_run not in state.runs:
                continue
            case GrantChanged() | Compacted():
                continue
            case RunStarted() | RunQueued():
                pass
            case _ if event.run_id and event.run_id not in state.runs:
                continue
        state.next_seq = event.seq
        state.apply(event)
    return window
