"""Kill -9 at the moment a run is acknowledged: its message is there, once."""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.engine.models import RunStatus
from tests.chaos.broken_builds import ACK_BEFORE_COMMIT
from tests.chaos.instances import Site
from tests.chaos.scale import trials
from tests.patience import seconds

KILLS = trials(full=300, small=5)


async def lost_messages(site: Site, kills: int, *options: str) -> list[str]:
    """What is missing or torn after so many kills, each on the byte that ends the answer."""
    problems = []
    for trial in range(kills):
        thread_id, text = f"t{trial}", f"hello {trial} é"
        instance = await site.start(*options)
        instance.dies_on_answer = True
        await instance.ask("start", thread_id=thread_id, run_id=f"r{trial}", text=text)
        assert await instance.ended() == -9
        if not await site.exists(thread_id):
            problems.append(f"{thread_id} was acknowledged and is lost")
            continue
        runs = (await site.state(thread_id)).runs
        said = [(run.run_id, run.message.text if run.message else None) for run in runs.values()]
        if said != [(f"r{trial}", text)]:
            problems.append(f"{thread_id} says {said}")
    return problems


@pytest.mark.timeout(seconds(1800))
async def test_an_acknowledged_run_survives_kill_9_and_is_finished_after_a_restart(
    site: Site,
) -> None:
    """Red with the build that acknowledges before it commits: see the next test."""
    assert await lost_messages(site, KILLS) == []
    await site.start()
    runs = await asyncio.gather(*(site.settled(f"t{n}", f"r{n}") for n in range(KILLS)))
    # Every process that was killed here had first taken over what the ones before it left behind.
    endings = {run.failure.code if run.failure else run.phase for run in runs}
    assert endings <= {"completed", "recovery_attempts_exceeded"}
    assert runs[-1].phase is RunStatus.COMPLETED


@pytest.mark.chaos
@pytest.mark.timeout(seconds(1800))
async def test_the_experiment_finds_out_an_answer_before_the_commit(site: Site) -> None:
    assert await lost_messages(site, 10, f"broken={ACK_BEFORE_COMMIT}")
