"""Logs that cannot have happened are damage, and folding says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sk_agents.engine.events import (
    BranchChanged,
    Event,
)
from sk_agents.engine.log.state import fold
from sk_agents.exceptions import StateCorrupt
from tests.engine.builders import (
    answered,
    asked,
    cancelled,
    dequeued,
    ended,
    log,
    proposed,
    queued,
    started,
    thought,
    tool_started,
    turn,
)
from tests.engine.histories import legal_logs


@pytest.mark.parametrize("seqs", [(2,), (0,), (1, 3), (1, 1), (1, 2, 2)])
def test_gap_or_repeated_number_is_damage(seqs: tuple[int, ...]) -> None:
    events: list[Event] = [started(), thought(), thought()]
    with pytest.raises(StateCorrupt):
        fold(
            event.model_copy(update={"seq": seq}) for event, seq in zip(events, seqs, strict=False)
        )


IMPOSSIBLE: dict[str, list[Event]] = {
    "a step of an unknown run": [thought()],
    "an end of an unknown run": [ended()],
    "a second start": [started(), started()],
    "a start while another runs": [started(), started("r2")],
    "a start after a run that still runs": [started(), started("r2", parent="r1")],
    "a start of an ended run": [*turn(), started()],
    "a second end": [*turn(), ended()],
    "a step after the end": [*turn(), thought()],
    "a step of a queued run": [started(), queued("r2"), thought("r2")],
    "a queued run that completes": [started(), queued("r2"), ended("r2")],
    "the same run queued twice": [started(), queued("r2"), queued("r2")],
    "an unknown parent": [started(parent="r0")],
    "an unknown parent of a queued run": [*turn(), queued("r2"), dequeued("r2", parent="r0")],
    "a run that is its own parent": [*turn(), queued("r2"), dequeued("r2", parent="r2")],
    "a parent that never ran": [queued("r1"), queued("r2"), dequeued("r1", parent="r2")],
    "a start without a message": [dequeued("r1")],
    "a queued message said twice": [*turn(), queued("r2"), started("r2", parent="r1")],
    "a switch to an unknown run": [*turn(), BranchChanged(head_run="r9")],
    "an end with an open call": [started(), proposed(), answered(), ended()],
    "an end with a running call": [started(), proposed(), tool_started(), answered(), ended()],
    "an end with an open approval": [started(), proposed(), asked(), *cancelled()],
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_history_is_damage(name: str) -> None:
    with pytest.raises(StateCorrupt):
        fold(log(*IMPOSSIBLE[name]))


@given(legal_logs(), st.data())
def test_log_with_a_missing_event_is_damage(events: list[Event], data: st.DataObject) -> None:
    missing = data.draw(st.integers(0, len(events) - 2)) if len(events) > 1 else None
    if missing is not None:
        with pytest.raises(StateCorrupt):
            fold(events[:missing] + events[missing + 1 :])
