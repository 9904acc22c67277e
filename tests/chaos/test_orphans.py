"""What is left of dead processes: taken over at once, once, and not for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sk_agents.engine.events import ModelRestarted
from sk_agents.engine.failpoints import POINTS
from sk_agents.engine.models import RunStatus
from tests.chaos.instances import Site, until
from tests.chaos.scale import trials
from tests.patience import seconds
from tests.requirements import requirement

RUNS = trials(full=100, small=5)


@requirement("S004-4.4-restart")
@pytest.mark.timeout(seconds(600))
async def test_every_orphan_of_a_fleet_killed_at_once_is_taken_over_once(site: Site) -> None:
    """Red with the build without a sweeper, and with the one that claims without a condition.

    Leases are long: a rescuer that stalls for longer than its own is rightly rescued from. That a
    killed process is gone shows at once all the same.
    """
    fleet = [await site.start() for _ in range(3)]
    names = [f"t{number}" for number in range(3 * RUNS)]
    await asyncio.gather(
        *(
            fleet[number % 3].ask("start", thread_id=name, run_id=name, text="hold")
            for number, name in enumerate(names)
        )
    )
    for _ in names:
        await site.model.asked.get()
    await asyncio.gather(*(instance.kill() for instance in fleet))
    site.model.gate.set()
    await asyncio.gather(*(site.start("ttl=5") for _ in range(3)))
    runs = await asyncio.gather(*(site.settled(name, name) for name in names))
    assert {run.phase for run in runs} == {RunStatus.COMPLETED}
    for name in names:
        log = await site.store.events_after(name, 0)
        assert [type(event) for event in log].count(ModelRestarted) == 1


@pytest.mark.timeout(seconds(600))
async def test_a_run_that_kills_its_process_is_given_up_and_the_others_go_on(site: Site) -> None:
    """Red with the build that takes over without counting."""
    first = await site.start()
    await first.ask("start", thread_id="waiting", run_id="waiting", text="sign")
    approval_id = await site.approval_of("waiting", "waiting")
    await first.ask("start", thread_id="poison", run_id="poison", text="die")
    assert await first.ended() == -9
    for _ in range(3):
        assert await (await site.launch()).ended() == -9
    survivor = await site.start()
    run = await site.settled("poison", "poison")
    assert run.phase is RunStatus.FAILED
    assert run.failure is not None and run.failure.code == "recovery_attempts_exceeded"
    await survivor.ask("decide", approval_id=approval_id, approved=True)
    assert (await site.settled("waiting", "waiting")).phase is RunStatus.COMPLETED
    await survivor.ask("start", thread_id="poison", run_id="next", text="say")
    assert (await site.settled("poison", "next")).phase is RunStatus.COMPLETED


async def test_a_killed_rescuer_is_itself_recovered_from(site: Site) -> None:
    owner = await site.start()
    await owner.ask("start", thread_id="t", run_id="t", text="pay")
    await owner.kill()
    rescuer = await site.launch(failpoint="claimed:kill")
    state = await site.state("t")
    if state.active_run is not None:
        assert await rescuer.ended() == -9
    await site.start()
    run = await site.settled("t", "t")
    assert run.phase is RunStatus.COMPLETED or run.pending_approvals
    assert site.ledger.count("t") <= 1


@requirement("S004-4.2-parked")
async def test_a_waiting_run_holds_no_lease_and_survives_every_process(site: Site) -> None:
    """Red with the build that waits inside the run."""
    asker = await site.start()
    await asker.ask("start", thread_id="t", run_id="t", text="sign")
    approval_id = await site.approval_of("t", "t")
    head = await site.head("t")
    assert (head.owner, head.runnable) == (None, False)
    await asker.kill()
    decider = await site.start()
    await decider.ask("decide", approval_id=approval_id, approved=True)
    assert (await site.settled("t", "t")).phase is RunStatus.COMPLETED
    assert site.ledger.count("t") == 1


async def test_a_run_whose_agent_nobody_has_any_more_fails(site: Site) -> None:
    """Red with the build that leaves it to others for ever."""
    owner = await site.start()
    await owner.ask("start", thread_id="t", run_id="t", text="hold")
    await site.model.asked.get()
    await owner.kill()
    other = await site.start("agent=somebody-else")
    run = await site.settled("t", "t")
    assert run.phase is RunStatus.FAILED
    assert run.failure is not None and run.failure.code == "agent_missing"
    assert other.process.returncode is None


@requirement("S004-7.3-save-fails")
async def test_runs_dropped_by_a_failing_store_go_on_once_it_is_back(
    site: Site, tmp_path: Path
) -> None:
    """Red with the build whose sweeper ends with its first error."""
    switch = tmp_path / "outage"
    instance = await site.start(f"outage={switch}")
    await instance.ask("start", thread_id="t", run_id="t", text="hold")
    await site.model.asked.get()
    switch.touch()
    site.model.gate.set()

    async def leased() -> bool | None:
        orphans = await site.store.orphans()
        return bool(orphans) or None

    await until(leased)
    switch.unlink()
    assert (await site.settled("t", "t")).phase is RunStatus.COMPLETED
    await instance.ask("start", thread_id="t", run_id="next", text="pay")
    assert (await site.settled("t", "next")).phase is RunStatus.COMPLETED
    assert instance.process.returncode is None


def test_every_failpoint_is_passed_somewhere_in_the_source() -> None:
    source = Path(__file__).parents[2] / "src" / "sk_agents"
    text = "".join(path.read_text() for path in source.rglob("*.py"))
    passed = [point for point in POINTS if f'failpoint("{point}")' in text]
    announced = [point for point in POINTS if f': "{point}"' in text]
    assert sorted(passed + announced) == sorted(POINTS)
