"""Kill -9 at every step of a turn: it goes on or visibly waits, and no effect happens twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sk_agents.engine.failpoints import TURN
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import RunStatus
from tests.chaos.broken_builds import RETRY_ON_MISSING_RESULT
from tests.chaos.instances import Gone, Instance, Site
from tests.chaos.scale import trials
from tests.patience import seconds
from tests.requirements import requirement

TRIALS = trials(full=20, small=1)
ASKING = {"approval_requested", "approval_decided"}
# Between these and the stored result nobody can know what became of the effect. The commit that
# proposes a call which may run has started it, too.
AROUND_THE_EFFECT = {
    "calls_proposed": 0,
    "tool_started": 0,
    "tool_dispatched": 0,
    "tool_effect_done": 1,
}


async def killed_at(site: Site, point: str, text: str, name: str) -> None:
    """A run of its own, its process killed at the point."""
    # The end of its process frees its runs, no time does: a slow machine must not.
    victim = await site.start("ttl=60", failpoint=f"{point}:kill")
    try:
        await victim.ask("start", thread_id=name, run_id=name, text=text)
        victim.send("watch", thread_id=name)
        if point == "approval_decided":
            approval_id = await site.approval_of(name, name)
            await victim.ask("decide", approval_id=approval_id, approved=True)
    except Gone:
        pass
    assert await victim.ended() == -9, f"{point} was not passed"


async def brought_on(site: Site, rescuer: Instance, name: str, text: str, point: str) -> Run:
    """The run as it settles after the kill; what was never stored is asked for again."""
    if not await site.exists(name):
        assert point == "run_requested"
        await rescuer.ask("start", thread_id=name, run_id=name, text=text)
    run = await site.settled(name, name)
    if point == "approval_requested":
        [approval] = run.pending_approvals
        assert approval.request.kind == "tool"
        await rescuer.ask("decide", approval_id=approval.request.approval_id, approved=True)
        run = await site.settled(name, name)
    return run


def judged(run: Run, effects: int, point: str) -> str | None:
    """What is wrong with a run of one call that may happen once."""
    [call] = run.calls.values()
    if effects > 1:
        return f"{point}: the effect happened {effects} times"
    if call.finished is not None and call.finished.outcome == "ok" and effects != 1:
        return f"{point}: reported as done, but it was not"
    if point in AROUND_THE_EFFECT:
        kinds = [approval.request.kind for approval in run.pending_approvals]
        if (kinds, effects) != (["outcome_unknown"], AROUND_THE_EFFECT[point]):
            return f"{point}: guessed instead of asked: {run.status}, {kinds}, {effects} effects"
    elif (run.status, effects) != (RunStatus.COMPLETED, 1):
        return f"{point}: ended {run.status} with {effects} effects"
    return None


async def kill_once(site: Site, rescuer: Instance, point: str, name: str) -> str | None:
    text = "sign" if point in ASKING else "pay"
    await killed_at(site, point, text, name)
    try:
        run = await brought_on(site, rescuer, name, text, point)
    except TimeoutError:
        return f"{point}: the run neither ended nor waits"
    return judged(run, site.ledger.count(name), point)


async def kill_everywhere(site: Site, points: Sequence[str], *rescuer_options: str) -> list[str]:
    """One victim at a time: two would recover, and die of, each other's runs."""
    rescuer = await site.start(*rescuer_options)
    problems = [
        await kill_once(site, rescuer, point, f"{point}-{trial}")
        for trial in range(TRIALS)
        for point in points
    ]
    return [problem for problem in problems if problem]


@requirement("S004-4.4-step-commits")
@pytest.mark.timeout(seconds(3600))
@pytest.mark.parametrize("points", [TURN[:6], TURN[6:12], TURN[12:]], ids=["model", "tool", "end"])
async def test_a_kill_at_any_step_repeats_no_effect_and_leaves_no_run_behind(
    site: Site, points: tuple[str, ...]
) -> None:
    """Red with the build that retries on a missing result: see the next test. Without a sweeper
    every point but the last would stay open."""
    assert await kill_everywhere(site, points) == []


@pytest.mark.chaos
@pytest.mark.timeout(seconds(600))
async def test_the_experiment_finds_out_a_retry_on_a_missing_result(site: Site) -> None:
    broken = f"broken={RETRY_ON_MISSING_RESULT}"
    assert await kill_everywhere(site, ["tool_effect_done"], broken)


@pytest.mark.parametrize("point", ["tool_started", "tool_effect_done"])
async def test_a_lost_idempotent_call_is_repeated_with_the_same_key(site: Site, point: str) -> None:
    """Red with the build that makes a new key for each attempt."""
    await site.start()
    await killed_at(site, point, "put", "t")
    run = await site.settled("t", "t")
    [call] = run.calls.values()
    assert run.phase is RunStatus.COMPLETED
    assert call.started is not None and call.started.attempt == 2
    keys = [line["key"] for line in site.ledger.lines()]
    assert keys == [call.started.idempotency_key] * (2 if point == "tool_effect_done" else 1)


@pytest.mark.parametrize(
    ("choice", "effects"), [("done", 1), ("retry", 2), ("give_up", 1)], ids=str
)
async def test_a_person_settles_an_unknown_outcome(site: Site, choice: str, effects: int) -> None:
    rescuer = await site.start()
    await killed_at(site, "tool_effect_done", "pay", "t")
    approval_id = await site.approval_of("t", "t")
    await rescuer.ask("decide", approval_id=approval_id, approved=True, choice=choice)
    assert (await site.settled("t", "t")).phase is RunStatus.COMPLETED
    assert site.ledger.count("t") == effects
