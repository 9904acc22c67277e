"""A failing plan made smaller: what can be left out while it still fails is left out."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.plan import Plan

Fails = Callable[[Plan], bool]


def shrunk(plan: Plan, fails: Fails) -> Plan:
    """A plan that still fails and does not without any one of its actions or faults.

    Halves are tried before single ones, so that a long plan takes few tries.
    """
    size = max(len(plan.actions), len(plan.faults))
    while size:
        smaller = _without_chunks(plan, fails, size)
        if smaller == plan:
            size //= 2
        plan = smaller
    return plan


def _without_chunks(plan: Plan, fails: Fails, size: int) -> Plan:
    for begin in range(0, len(plan.faults), size):
        tried = plan.without(faults=range(begin, begin + size))
        if tried != plan and fails(tried):
            return tried
    for begin in range(0, len(plan.actions), size):
        tried = plan.without(actions=range(begin, begin + size))
        if tried != plan and fails(tried):
            return tried
    return plan
