"""How much memory an event takes beyond what every event does: its text, twice for safety."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sk_agents.engine.events import (
    Answered,
    ApprovalRequested,
    Event,
    RunQueued,
    RunStarted,
    Thinking,
    ToolFinished,
    ToolProposed,
)

# What an event takes beside its text, measured.
EVENT_BYTES = 600


def size_of(event: Event) -> int:
    measure = _SIZES.get(type(event))
    return measure(event) if measure is not None else 0


def within(events: Sequence[Event], max_bytes: int) -> Sequence[Event]:
    """The first of them, as many as `max_bytes` hold; one at least."""
    size = 0
    for number, event in enumerate(events):
        size += EVENT_BYTES + size_of(event)
        if size > max_bytes and number:
            return events[:number]
    return events


def _said_size(event: RunStarted | RunQueued) -> int:
    return 2 * sum(len(part.content) for part in event.message.parts) if event.message else 0


_SIZES: Mapping[type[Event], Callable[[Any], int]] = {
    Answered: lambda event: 2 * len(event.content),
    Thinking: lambda event: 2 * len(event.content),
    ToolFinished: lambda event: 2 * len(event.result),
    ToolProposed: lambda event: EVENT_BYTES + 2 * len(repr(event.arguments)),
    ApprovalRequested: lambda event: EVENT_BYTES + 2 * len(repr(event.shown)),
    RunStarted: _said_size,
    RunQueued: _said_size,
}
