"""A budget that three processes spend at once: never passed by more than a call a conversation."""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.engine.models import RunStatus
from sk_agents.spending.usage import NANO
from tests.chaos.instances import Refused, Site
from tests.chaos.obedient_model import SPENT
from tests.chaos.scale import trials
from tests.patience import seconds

CONVERSATIONS = trials(full=64, small=12)
# As money allows: a call costs 0.02 and reserves half of that.
BUDGET = trials(full=100, small=20) / 100
CALL = SPENT.total_tokens * 10 / 1_000_000
TURNS = 3


async def spent(site: Site) -> float:
    """As all instances have counted it."""
    return sum((await site.store.sums("budget\t")).values()) / NANO


@pytest.mark.timeout(seconds(600))
async def test_budget_is_passed_by_at_most_one_call_of_each_conversation(site: Site) -> None:
    fleet = [await site.start("ttl=30", f"budget={BUDGET:.2f} USD") for _ in range(3)]
    refused_at_start = 0

    async def converse(number: int) -> list[str]:
        nonlocal refused_at_start
        begun = []
        for turn in range(TURNS):
            thread, run = f"t{number}", f"t{number}.{turn}"
            try:
                instance = fleet[(number + turn) % 3]
                await instance.ask("start", thread_id=thread, run_id=run, text="spend")
            except Refused as refusal:
                assert str(refusal) == "budget_exceeded"
                refused_at_start += 1
                continue
            await site.settled(thread, run)
            begun.append(run)
        return begun

    begun = await asyncio.gather(*(converse(number) for number in range(CONVERSATIONS)))
    runs = [
        (await site.state(f"t{number}")).runs[run]
        for number, names in enumerate(begun)
        for run in names
    ]
    paid = [run for run in runs if run.phase is RunStatus.COMPLETED]
    stopped = [run for run in runs if run.phase is RunStatus.FAILED]
    costs = sum(run.usage.cost.amount for run in paid if run.usage.cost is not None)
    # What was charged is what the logs say, to the last call; nothing stays reserved.
    assert await spent(site) == pytest.approx(costs)
    assert costs == pytest.approx(len(paid) * CALL)
    assert {run.failure.code for run in stopped if run.failure} <= {"budget_exceeded"}
    assert len(stopped) + refused_at_start > 0
    # It was used as far as it goes, and passed by less than a call of each conversation.
    assert BUDGET - CALL <= costs <= BUDGET + CONVERSATIONS * CALL


async def test_reservation_of_a_killed_process_is_held(site: Site) -> None:
    first = await site.start("ttl=30", "budget=1.00 USD")
    await first.ask("start", thread_id="t", run_id="t", text="hold spend")
    await site.model.asked.get()
    held = await spent(site)
    assert held > 0
    await first.kill()
    site.model.gate.set()
    await site.start("ttl=30", "budget=1.00 USD")
    run = await site.settled("t", "t")
    assert run.phase is RunStatus.COMPLETED
    assert await spent(site) > held
