"""Whether the time of an approval is up, on a clock that nobody can set.

A wall clock can be wrong on one machine, or be moved by a day while everything runs; then it would
end every approval there is. So one expires only when its lifetime has also passed on the host's
own clock, which starts with the machine and is the same for all of its processes.
"""

from __future__ import annotations

from sk_agents.engine.events import ApprovalRequested
from sk_agents.engine.ports import Clock


def has_passed(request: ApprovalRequested, clock: Clock) -> bool:
    """Whether at least its lifetime has passed since it was asked, whatever the wall clock says.

    An older one, that does not say when it was asked by the host's clock, is judged by the wall
    clock alone.
    """
    if request.expires_at is None or request.asked_uptime is None:
        return True
    lifetime = (request.expires_at - request.at).total_seconds()
    return _passed_since(request.asked_uptime, clock.monotonic()) >= lifetime


def _passed_since(asked: float, now: float) -> float:
    """Seconds that have passed for sure: a machine that was started anew counts from its start."""
    return now - asked if now >= asked else now
