"""An owner that was stopped for longer than its lease cannot write, nor start anything."""

from __future__ import annotations

import signal

import pytest

from sk_agents.engine.models import CallState, RunStatus
from sk_agents.exceptions import StateCorrupt
from tests.chaos.broken_builds import LEASE_WITHOUT_EPOCH
from tests.chaos.instances import Instance, Site, until
from tests.chaos.scale import trials
from tests.patience import seconds

STOPS = trials(full=30, small=1)


async def taken_over(site: Site, thread_id: str, epoch: int) -> None:
    async def look() -> bool | None:
        return (await site.head(thread_id)).epoch > epoch or None

    await until(look)


async def stopped_in_the_model(site: Site, name: str, *options: str) -> Instance:
    """An owner stopped while its model speaks; the other instance has taken over."""
    stale = await site.start(*options)
    await stale.ask("start", thread_id=name, run_id=name, text="hold")
    await heard(site, "hold")
    stale.signal(signal.SIGSTOP)
    await taken_over(site, name, 1)
    await heard(site, "hold")
    return stale


async def heard(site: Site, text: str) -> None:
    """Until the model is asked this; what was asked in an earlier trial does not count."""
    while await site.model.asked.get() != text:
        pass


async def stopped_in_a_tool(site: Site, name: str, *options: str) -> Instance:
    """An owner stopped while the effect has happened and is not answered yet; a person is asked."""
    stale = await site.start(*options)
    await stale.ask("start", thread_id=name, run_id=name, text="pay:hold")
    await site.ledger.next_effect()
    stale.signal(signal.SIGSTOP)
    await site.settled(name, name)
    return stale


@pytest.mark.timeout(seconds(1800))
@pytest.mark.parametrize("resumed", ["before the new owner has answered", "after it"])
async def test_an_owner_stopped_in_its_model_stops_its_run_when_it_comes_back(
    site: Site, resumed: str
) -> None:
    """Red with the build whose leases have no epoch: see the last test."""
    await site.start()
    for trial in range(STOPS):
        name = f"t{trial}"
        site.model.gate.clear()
        stale = await stopped_in_the_model(site, name)
        broken_off = site.model.broken_off
        if resumed == "after it":
            site.model.gate.set()
            assert (await site.settled(name, name)).phase is RunStatus.COMPLETED
            stale.signal(signal.SIGCONT)
        else:
            stale.signal(signal.SIGCONT)

            async def look(before: int = broken_off) -> bool | None:
                return site.model.broken_off > before or None

            await until(look)
            site.model.gate.set()
        assert (await site.settled(name, name)).phase is RunStatus.COMPLETED
        # It is alive and works; what it commits to this thread is refused.
        await stale.ask("start", thread_id=f"{name}-next", run_id="next", text="hello")
        assert (await site.settled(f"{name}-next", "next")).phase is RunStatus.COMPLETED
        state = await site.state(name)
        assert [run.phase for run in state.runs.values()] == [RunStatus.COMPLETED]
        await stale.kill()


@pytest.mark.timeout(seconds(1800))
async def test_a_result_that_comes_too_late_is_shown_with_the_question_about_it(
    site: Site,
) -> None:
    """Red with the build whose leases have no epoch: see the last test."""
    other = await site.start()
    for trial in range(STOPS):
        name = f"t{trial}"
        stale = await stopped_in_a_tool(site, name)
        stale.signal(signal.SIGCONT)
        await site.ledger.release()

        async def look(name: str = name) -> str | None:
            [call] = (await site.state(name)).runs[name].calls.values()
            assert call.state is CallState.UNKNOWN and call.waits
            return call.late_result

        assert await until(look) == "written"
        approval_id = await site.approval_of(name, name)
        await other.ask("decide", approval_id=approval_id, approved=True, choice="done")
        run = await site.settled(name, name)
        [call] = run.calls.values()
        assert run.phase is RunStatus.COMPLETED
        assert call.finished is not None and call.finished.result == "written"
        assert site.ledger.count(name) == 1
        await stale.kill()
        await site.ledger.hold()


@pytest.mark.timeout(seconds(1800))
async def test_an_owner_stopped_before_it_dispatched_a_tool_does_not_dispatch_it_later(
    site: Site,
) -> None:
    """Red with the build that looks at its lease only before it stores the start."""
    await site.start()
    for trial in range(STOPS):
        name = f"t{trial}"
        stale = await site.start(failpoint="tool_started:stop")
        await stale.ask("start", thread_id=name, run_id=name, text="pay")
        await stale.stopped()
        run = await site.settled(name, name)
        assert [approval.request.kind for approval in run.pending_approvals] == ["outcome_unknown"]
        stale.signal(signal.SIGCONT)
        await stale.ask("start", thread_id=f"{name}-next", run_id="next", text="put")
        await site.settled(f"{name}-next", "next")
        assert site.ledger.count(name) == 0
        await stale.kill()


@pytest.mark.chaos
async def test_the_experiment_finds_out_a_lease_without_epoch(site: Site) -> None:
    await site.start()
    stale = await stopped_in_a_tool(site, "t", f"broken={LEASE_WITHOUT_EPOCH}")
    stale.signal(signal.SIGCONT)
    await site.ledger.release()

    async def look() -> bool | None:
        try:
            [call] = (await site.state("t")).runs["t"].calls.values()
        except StateCorrupt:
            return True
        return call.finished is not None or None

    assert await until(look)
