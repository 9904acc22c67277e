"""Every legal change of state, in one table a kind.

`None` is "does not exist yet". A change that is not here is not made: a command that asks for it
is refused, and a log that contains it is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from sk_agents.engine.models import ApprovalState, CallState, RunStatus
from sk_agents.exceptions import StateCorrupt

RUN: Mapping[RunStatus | None, frozenset[RunStatus]] = {
    None: frozenset({RunStatus.QUEUED, RunStatus.RUNNING}),
    RunStatus.QUEUED: frozenset({RunStatus.RUNNING, RunStatus.CANCELLED}),
    RunStatus.RUNNING: frozenset(
        {RunStatus.WAITING, RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}
    ),
    RunStatus.WAITING: frozenset({RunStatus.RUNNING, RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.COMPLETED: frozenset(),
    RunStatus.FAILED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
}

CALL: Mapping[CallState | None, frozenset[CallState]] = {
    None: frozenset({CallState.PROPOSED}),
    CallState.PROPOSED: frozenset({CallState.STARTED, CallState.FINISHED}),
    CallState.STARTED: frozenset({CallState.STARTED, CallState.UNKNOWN, CallState.FINISHED}),
    CallState.UNKNOWN: frozenset({CallState.STARTED, CallState.FINISHED}),
    CallState.FINISHED: frozenset(),
}

APPROVAL: Mapping[ApprovalState | None, frozenset[ApprovalState]] = {
    None: frozenset({ApprovalState.PENDING}),
    ApprovalState.PENDING: frozenset(
        {
            ApprovalState.APPROVED,
            ApprovalState.REJECTED,
            ApprovalState.EXPIRED,
            ApprovalState.WITHDRAWN,
        }
    ),
    ApprovalState.APPROVED: frozenset({ApprovalState.CONSUMED, ApprovalState.WITHDRAWN}),
    ApprovalState.REJECTED: frozenset(),
    ApprovalState.EXPIRED: frozenset(),
    ApprovalState.WITHDRAWN: frozenset(),
    ApprovalState.CONSUMED: frozenset(),
}

S = TypeVar("S", bound=StrEnum)

TERMINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
# It goes on by itself no more.
SETTLED = TERMINAL | {RunStatus.WAITING}


def step(table: Mapping[S | None, frozenset[S]], old: S | None, new: S, what: str) -> S:
    """The new state, if the table allows it.

    Raises:
        StateCorrupt: the table does not allow it.
    """
    if new not in table[old]:
        raise StateCorrupt(f"{what} cannot go from {old or 'nothing'} to {new}")
    return new
