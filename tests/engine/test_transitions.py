"""The tables of legal changes are complete and end where they must."""

from collections.abc import Mapping
from enum import StrEnum

import pytest

from sk_agents.engine.models import (
    APPROVAL_CHANGES,
    CALL_CHANGES,
    RUN_CHANGES,
    TERMINAL,
    ApprovalState,
    CallState,
    RunStatus,
    checked_change,
)
from sk_agents.exceptions import StateCorrupt

Table = Mapping[StrEnum | None, frozenset[StrEnum]]

TABLES: list[tuple[Table, type[StrEnum]]] = [
    (RUN_CHANGES, RunStatus),  # type: ignore[list-item]  # Mapping keys are invariant
    (CALL_CHANGES, CallState),  # type: ignore[list-item]
    (APPROVAL_CHANGES, ApprovalState),  # type: ignore[list-item]
]
each_table = pytest.mark.parametrize(("table", "states"), TABLES)


@each_table
def test_table_speaks_of_every_state_and_no_other(table: Table, states: type[StrEnum]) -> None:
    assert set(table) == {None, *states}
    assert frozenset().union(*table.values()) == set(states)


@each_table
def test_every_state_can_be_reached(table: Table, states: type[StrEnum]) -> None:
    reached: set[StrEnum | None] = {None}
    for _ in states:
        reached |= {new for old in reached for new in table[old]}
    assert reached == {None, *states}


def test_ended_states_have_no_exit() -> None:
    assert {state for state in RunStatus if not RUN_CHANGES[state]} == TERMINAL
    assert [state for state in CallState if not CALL_CHANGES[state]] == [CallState.FINISHED]
    assert {state for state in ApprovalState if not APPROVAL_CHANGES[state]} == {
        ApprovalState.REJECTED,
        ApprovalState.EXPIRED,
        ApprovalState.WITHDRAWN,
        ApprovalState.CONSUMED,
    }


def test_every_open_run_can_be_cancelled() -> None:
    for state in set(RunStatus) - TERMINAL:
        assert RunStatus.CANCELLED in RUN_CHANGES[state]


def test_only_an_approved_approval_is_consumed() -> None:
    sources = [old for old, new in APPROVAL_CHANGES.items() if ApprovalState.CONSUMED in new]
    assert sources == [ApprovalState.APPROVED]


@each_table
def test_step_allows_the_table_and_nothing_else(table: Table, states: type[StrEnum]) -> None:
    for old in table:
        for new in states:
            if new in table[old]:
                assert checked_change(table, old, new, "it") is new
            else:
                with pytest.raises(StateCorrupt, match="it cannot go from"):
                    checked_change(table, old, new, "it")
