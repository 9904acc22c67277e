"""Headers that users have lent to calls of runs which another instance drives.

A header is held in memory by the instance that took the decision and is never stored. So it is
the run that moves: its owner finishes what it has begun and gives the run back, and the instance
with the header claims it. Should that one be gone, the header is asked for again after a while.
"""

from __future__ import annotations

from sk_agents.engine.calls.call import Call
from sk_agents.engine.models import ApprovalState
from sk_agents.engine.threads.known import KnownThread

# How long a run that was given back is left to the instance that holds its header.
PATIENCE_SECONDS = 10.0


def is_lent_one(call: Call) -> bool:
    """Whether the user has lent this call a header that it has not been started with."""
    approval = call.approval
    return (
        approval is not None
        and approval.request.kind == "auth"
        and approval.state is ApprovalState.APPROVED
    )


def awaits_header(known: KnownThread) -> bool:
    """Whether a call of the active run has been lent one."""
    run = known.state.runs.get(known.state.active_run or "")
    return run is not None and any(map(is_lent_one, run.unresolved_calls))
