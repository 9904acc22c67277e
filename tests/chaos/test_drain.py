"""SIGTERM: the process leaves in good time and another one goes on; nothing fails because of it."""

from __future__ import annotations

import asyncio
import signal

import pytest

from sk_agents.engine.models import RunStatus
from sk_agents.engine.run.recovery import MAX_RECOVERIES
from tests.chaos.instances import Site
from tests.requirements import requirement


@requirement("S003-3d-deployment")
@pytest.mark.parametrize("text", ["hold", "put:hold"])
async def test_a_run_in_the_middle_of_something_is_handed_over(site: Site, text: str) -> None:
    """Red with the build that leaves its leases to run out, or fails what it was doing."""
    leaving = await site.start()
    await leaving.ask("start", thread_id="t", run_id="t", text=text)
    await (site.model.asked.get() if text == "hold" else site.ledger.next_effect())
    leaving.signal(signal.SIGTERM)
    assert await leaving.ended() == 0
    head = await site.head("t")
    assert (head.owner, head.runnable) == (None, True)
    site.model.gate.set()
    await site.ledger.release()
    await site.start()
    assert (await site.settled("t", "t")).phase is RunStatus.COMPLETED
    assert len({line["key"] for line in site.ledger.lines()}) <= 1


async def test_a_call_that_may_run_once_is_waited_for(site: Site) -> None:
    leaving = await site.start("grace=5")
    await leaving.ask("start", thread_id="t", run_id="t", text="pay:hold")
    await site.ledger.next_effect()
    leaving.signal(signal.SIGTERM)
    await site.ledger.release()
    assert await leaving.ended() == 0
    await site.start()
    assert (await site.settled("t", "t")).phase is RunStatus.COMPLETED
    assert site.ledger.count("t") == 1


async def test_a_call_that_does_not_end_in_time_is_asked_about(site: Site) -> None:
    leaving = await site.start("grace=0.1")
    await leaving.ask("start", thread_id="t", run_id="t", text="pay:hold")
    await site.ledger.next_effect()
    leaving.signal(signal.SIGTERM)
    assert await leaving.ended() == 0
    await site.start()
    run = await site.settled("t", "t")
    assert [approval.request.kind for approval in run.pending_approvals] == ["outcome_unknown"]
    assert site.ledger.count("t") == 1


async def test_a_waiting_run_is_left_as_it_is(site: Site) -> None:
    leaving = await site.start()
    await leaving.ask("start", thread_id="t", run_id="t", text="sign")
    approval_id = await site.approval_of("t", "t")
    before = await site.head("t")
    leaving.signal(signal.SIGTERM)
    assert await leaving.ended() == 0
    assert await site.head("t") == before
    other = await site.start()
    await other.ask("decide", approval_id=approval_id, approved=True)
    assert (await site.settled("t", "t")).phase is RunStatus.COMPLETED


async def test_a_run_handed_over_many_times_is_not_taken_for_poison(site: Site) -> None:
    """Red with the build that counts every take-over as a loss."""
    leaving = await site.start()
    await leaving.ask("start", thread_id="t", run_id="t", text="hold")
    for _ in range(MAX_RECOVERIES + 1):
        await site.model.asked.get()
        following = asyncio.create_task(site.start())
        leaving.signal(signal.SIGTERM)
        assert await leaving.ended() == 0
        leaving = await following
    await site.model.asked.get()
    site.model.gate.set()
    assert (await site.settled("t", "t")).phase is RunStatus.COMPLETED
