"""Edits that are killed or contested: the old branch or the new one, never both and never none."""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.engine.models import RunStatus
from tests.chaos.broken_builds import EDIT_IN_TWO_COMMITS
from tests.chaos.instances import Gone, Instance, Refused, Site
from tests.chaos.scale import trials
from tests.patience import seconds

KILLS = trials(full=20, small=1)
EDITS = trials(full=48, small=6)
# What is to be seen after a kill there: the old branch or the new one.
VISIBLE = {"edit_requested": ["old"], "edit_committed": ["new"]}


async def branch(site: Site, thread_id: str) -> list[str]:
    return [run.run_id for run in (await site.state(thread_id)).branch()]


async def kill_once(
    site: Site, rescuer: Instance, thread_id: str, point: str, *options: str
) -> str | None:
    """What is wrong after an edit was killed at the point."""
    await rescuer.ask("start", thread_id=thread_id, run_id="old", text="pay")
    await site.settled(thread_id, "old")
    before = await site.store.events_after(thread_id, 0)
    victim = await site.start(*options, failpoint=f"{point}:kill")
    with pytest.raises(Gone):
        await victim.ask("edit", thread_id=thread_id, run_id="new", edited="old", text="put")
    assert await victim.ended() == -9
    visible = await branch(site, thread_id)
    if visible != VISIBLE[point]:
        return f"{thread_id}: killed at {point}, {visible} is visible"
    after = await site.store.events_after(thread_id, 0)
    if list(after[: len(before)]) != list(before):
        return f"{thread_id}: what was before is not what it was"
    run = await site.settled(thread_id, visible[0])
    return None if run.phase is RunStatus.COMPLETED else f"{thread_id} ended {run.phase}"


async def killed_edits(site: Site, point: str, *options: str) -> list[str]:
    rescuer = await site.start()
    problems = [
        await kill_once(site, rescuer, f"t{trial}", point, *options) for trial in range(KILLS)
    ]
    return [problem for problem in problems if problem]


@pytest.mark.timeout(seconds(600))
@pytest.mark.parametrize("point", VISIBLE)
async def test_a_killed_edit_has_happened_as_a_whole_or_not_at_all(site: Site, point: str) -> None:
    """Red with the build that moves the branch in one commit and starts the run in the next: see
    the next test."""
    assert await killed_edits(site, point) == []


@pytest.mark.chaos
@pytest.mark.timeout(seconds(600))
async def test_the_experiment_finds_out_an_edit_in_two_commits(site: Site) -> None:
    broken = f"broken={EDIT_IN_TWO_COMMITS}"
    assert len(await killed_edits(site, "edit_committed", broken)) == KILLS


@pytest.mark.timeout(seconds(600))
async def test_of_simultaneous_edits_one_wins(site: Site) -> None:
    """Red with the build that checks for a busy thread without a condition."""
    instances = [await site.start() for _ in range(3)]
    await instances[0].ask("start", thread_id="t", run_id="old", text="say")
    await site.settled("t", "old")
    answers = await asyncio.gather(
        *(
            instances[number % 3].send(
                "edit", thread_id="t", run_id=f"new-{number}", edited="old", text="hold"
            )
            for number in range(EDITS)
        ),
        return_exceptions=True,
    )
    winners = [answer for answer in answers if isinstance(answer, str)]
    refusals = [str(answer) for answer in answers if isinstance(answer, Refused)]
    assert (len(winners), refusals) == (1, ["thread_busy"] * (EDITS - 1))
    assert await branch(site, "t") == winners
    site.model.gate.set()
    assert (await site.settled("t", winners[0])).phase is RunStatus.COMPLETED


async def test_an_approval_of_an_edited_run_can_never_run(site: Site) -> None:
    """Red with the build that leaves the approvals of an interrupted run open."""
    first, second = await site.start(), await site.start()
    await first.ask("start", thread_id="t", run_id="old", text="sign")
    approval_id = await site.approval_of("t", "old")
    with pytest.raises(Refused, match="thread_busy"):
        await second.ask("edit", thread_id="t", run_id="new", edited="old", text="say")
    await second.ask("cancel", thread_id="t", run_id="old")
    await second.ask("edit", thread_id="t", run_id="new", edited="old", text="say")
    with pytest.raises(Refused, match="approval_already_processed"):
        await first.ask("decide", approval_id=approval_id, approved=True)
    assert (await site.settled("t", "new")).phase is RunStatus.COMPLETED
    assert site.ledger.lines() == []
