"""Cancels that race with everything a run does: one end, and nothing starts after it was asked."""

from __future__ import annotations

import random

import pytest

from sk_agents.engine.events import CancelRequested, RunEnded, ToolStarted
from sk_agents.engine.models import RunStatus
from sk_agents.exceptions import StateCorrupt
from tests.chaos.broken_builds import CANCEL_SEEN_AT_LOOP_TOP, CANCEL_WITHOUT_CONDITION
from tests.chaos.instances import Instance, Refused, Site
from tests.chaos.scale import trials
from tests.patience import seconds

RACES = trials(full=500, small=12)
BROKEN_RACES = 100
CANCELS = trials(full=300, small=5)


async def cancelled_at(
    owner: Instance, canceller: Instance, name: str, text: str, event: int
) -> str | None:
    """Cancel when so many events were seen; the code of the refusal, if it was refused."""
    await owner.ask("start", thread_id=name, run_id=name, text=text)
    owner.send("watch", thread_id=name, run_id=name)
    for _ in range(event):
        await owner.events.get()
    try:
        await canceller.ask("cancel", thread_id=name, run_id=name)
    except Refused as refusal:
        return str(refusal)
    return None


async def judged(site: Site, name: str, refusal: str | None) -> str | None:
    run = await site.settled(name, name)
    log = await site.store.events_after(name, 0)
    kinds = [type(event) for event in log]
    if kinds.count(RunEnded) != 1:
        return f"{name} ended {kinds.count(RunEnded)} times"
    if refusal is not None:
        is_right = (refusal, run.phase) == ("already_terminal", RunStatus.COMPLETED)
        return None if is_right else f"{name} was refused with {refusal} and is {run.phase}"
    if run.phase is not RunStatus.CANCELLED:
        return f"{name} was cancelled and is {run.phase}"
    if ToolStarted in kinds[kinds.index(CancelRequested) :]:
        return f"{name} started a tool after it was cancelled"
    if site.ledger.count(name) > kinds.count(ToolStarted):
        return f"{name} had an effect without a start"
    return None


async def race(site: Site, number: int, chance: random.Random) -> str | None:
    """What is wrong after one cancel somewhere in a run, at this or the other instance."""
    name = f"t{number}"
    text = chance.choice(["pay", "put", "say", "pay put"])
    owner, canceller = chance.choice(site.instances), chance.choice(site.instances)
    moment = chance.randint(0, 5 if "p" in text else 2)
    refusal = await cancelled_at(owner, canceller, name, text, moment)
    try:
        return await judged(site, name, refusal)
    except (StateCorrupt, TimeoutError) as error:
        return f"{name}: {error!r}"


async def races(site: Site, count: int, *options: str) -> list[str]:
    chance = random.Random(11)
    for _ in range(2):
        await site.start(*options)
    problems = [await race(site, number, chance) for number in range(count)]
    return [problem for problem in problems if problem]


@pytest.mark.timeout(seconds(1800))
async def test_a_cancel_at_any_moment_leaves_one_end_and_starts_nothing_more(site: Site) -> None:
    """Red with the build that looks at the flag at the top of its loop only, so that what it starts
    is stored without the condition that nothing was appended, and with the one that stores the flag
    without a condition: see the next test."""
    assert await races(site, RACES) == []


@pytest.mark.chaos
@pytest.mark.timeout(seconds(600))
@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (CANCEL_SEEN_AT_LOOP_TOP, "started a tool after it was cancelled"),
        (CANCEL_WITHOUT_CONDITION, "was cancelled and is completed"),
    ],
)
async def test_the_experiment_finds_out_a_careless_cancel(
    site: Site, broken: str, problem: str
) -> None:
    found = await races(site, BROKEN_RACES, f"broken={broken}")
    assert [one for one in found if problem in one]


async def test_a_cancelled_approval_can_not_be_given_any_more(site: Site) -> None:
    """Red with the build that ends a waiting run without withdrawing what it asked."""
    owner, other = await site.start(), await site.start()
    await owner.ask("start", thread_id="t", run_id="t", text="sign")
    approval_id = await site.approval_of("t", "t")
    assert await other.ask("cancel", thread_id="t", run_id="t") == RunStatus.CANCELLED
    with pytest.raises(Refused, match="approval_already_processed"):
        await owner.ask("decide", approval_id=approval_id, approved=True)
    assert site.ledger.lines() == []


@pytest.mark.parametrize("text", ["hold", "pay:hold"])
async def test_a_run_whose_owner_is_dead_can_be_cancelled(site: Site, text: str) -> None:
    """Red with the build without a sweeper."""
    owner = await site.start()
    other = await site.start()
    await owner.ask("start", thread_id="t", run_id="t", text=text)
    await (site.model.asked.get() if text == "hold" else site.ledger.next_effect())
    await owner.kill()
    await other.ask("cancel", thread_id="t", run_id="t")
    run = await site.settled("t", "t")
    assert run.phase is RunStatus.CANCELLED
    assert site.ledger.count("t") == (0 if text == "hold" else 1)


@pytest.mark.timeout(seconds(600))
async def test_a_cancel_elsewhere_ends_a_watched_run_before_its_model_does(site: Site) -> None:
    """Red with the build whose driver does not hear of what a reader beside it has read. The model
    never ends by itself, and no sweep comes within the test."""
    owner, other = await site.start("ttl=600"), await site.start("ttl=600")
    for number in range(CANCELS):
        name = f"t{number}"
        await owner.ask("start", thread_id=name, run_id=name, text="hold")
        await site.model.asked.get()
        owner.send("watch", thread_id=name, run_id=name)
        await other.ask("cancel", thread_id=name, run_id=name)
        assert (await site.settled(name, name)).phase is RunStatus.CANCELLED
