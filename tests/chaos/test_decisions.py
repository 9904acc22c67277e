"""Many people decide at once, at several instances."""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.engine.events import ApprovalDecided
from sk_agents.engine.models import RunStatus
from sk_agents.exceptions import StateCorrupt
from tests.chaos.broken_builds import LOAD_CHECK_SAVE_DECISION
from tests.chaos.instances import Instance, Refused, Site
from tests.chaos.scale import FULL, trials
from tests.patience import seconds
from tests.requirements import requirement

APPROVALS = trials(full=200, small=10)
DECIDERS = trials(full=32, small=8)
INSTANCES = 3 if FULL else 2


async def decide_at_once(instances: list[Instance], approval_id: str) -> list[bool]:
    """Everybody decides, half of them yes; what those had said who were not refused.

    Of those who were refused for any other reason than a decision nothing is known.
    """
    votes = [number % 2 == 0 for number in range(DECIDERS)]
    answers = await asyncio.gather(
        *(
            instances[number // 2 % len(instances)].send(
                "decide", approval_id=approval_id, approved=vote
            )
            for number, vote in enumerate(votes)
        ),
        return_exceptions=True,
    )
    return [
        vote
        for vote, answer in zip(votes, answers, strict=True)
        if str(answer) != "approval_already_processed"
    ]


async def contested(site: Site, *options: str) -> list[str]:
    """What is wrong after every approval was decided by many at once."""
    # Thousands of decisions at once keep an instance from its leases for longer than a short one
    # lasts; what then becomes of a tool that was about to start is another experiment's.
    instances = [await site.start("ttl=10", *options) for _ in range(INSTANCES)]
    names = [f"t{number}" for number in range(APPROVALS)]
    for name in names:
        await instances[0].ask("start", thread_id=name, run_id=name, text="sign")
    approvals = await asyncio.gather(*(site.approval_of(name, name) for name in names))
    outcomes = await asyncio.gather(*(decide_at_once(instances, one) for one in approvals))
    problems = []
    for name, winners in zip(names, outcomes, strict=True):
        log = await site.store.events_after(name, 0)
        stored = [
            event.outcome == "approved" for event in log if isinstance(event, ApprovalDecided)
        ]
        if len(winners) != 1 or stored != winners:
            problems.append(f"{name}: told {winners}, stored {stored}")
            continue
        try:
            run = await site.settled(name, name)
        except StateCorrupt as error:
            problems.append(f"{name}: {error}")
            continue
        if (run.phase, site.ledger.count(name)) != (RunStatus.COMPLETED, int(winners[0])):
            problems.append(f"{name}: {run.phase}, {site.ledger.count(name)} effects")
    return problems


@requirement("S000-request-idempotency-execution")
@pytest.mark.timeout(seconds(1800))
async def test_an_approval_contested_at_several_instances_is_decided_and_run_once(
    site: Site,
) -> None:
    """Red with the build that loads, checks and saves a decision: see the next test."""
    assert await contested(site) == []


@pytest.mark.chaos
@pytest.mark.timeout(seconds(1800))
async def test_the_experiment_finds_out_load_check_save(site: Site) -> None:
    assert await contested(site, f"broken={LOAD_CHECK_SAVE_DECISION}")


async def test_an_approval_that_echoes_another_digest_is_refused(site: Site) -> None:
    instance = await site.start()
    await instance.ask("start", thread_id="t", run_id="t", text="sign")
    approval_id = await site.approval_of("t", "t")
    with pytest.raises(Refused, match="approval_mismatch"):
        await instance.ask("decide", approval_id=approval_id, approved=True, digest="0" * 64)
    assert site.ledger.lines() == []
