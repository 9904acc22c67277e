"""Messages that arrive at once at several instances: one turn at a time, in order, none lost."""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.engine.events import RunQueued, RunStarted
from sk_agents.engine.models import RunStatus
from sk_agents.exceptions import StateCorrupt
from tests.chaos.broken_builds import BUSY_CHECK_WITHOUT_CONDITION
from tests.chaos.instances import Instance, Refused, Site
from tests.chaos.scale import trials
from tests.patience import seconds

ROUNDS = trials(full=100, small=2)
POSTS = trials(full=50, small=9)


async def post_at_once(
    instances: list[Instance], thread_id: str, round_: int, text: str, on_busy: str
) -> tuple[list[str], list[str]]:
    """The runs that were accepted, and why the others were not."""
    answers = await asyncio.gather(
        *(
            instances[number % len(instances)].send(
                "start",
                thread_id=thread_id,
                run_id=f"r{round_}-{number}",
                text=f"{text} {round_}-{number}",
                on_busy=on_busy,
            )
            for number in range(POSTS)
        ),
        return_exceptions=True,
    )
    accepted = [answer for answer in answers if isinstance(answer, str)]
    return accepted, [str(answer) for answer in answers if isinstance(answer, Refused)]


async def rejecting_rounds(site: Site, *options: str) -> list[str]:
    instances = [await site.start(*options) for _ in range(3)]
    await instances[0].ask("start", thread_id="t", run_id="first", text="hello")
    await site.settled("t", "first")
    problems = []
    for round_ in range(ROUNDS):
        site.model.gate.clear()
        accepted, refusals = await post_at_once(instances, "t", round_, "hold", "reject")
        site.model.gate.set()
        if len(accepted) != 1 or refusals != ["thread_busy"] * (POSTS - 1):
            problems.append(f"round {round_}: {accepted} accepted, {set(refusals)}")
            break
        try:
            await site.settled("t", accepted[0])
        except StateCorrupt as error:
            problems.append(f"round {round_}: {error}")
    return problems


@pytest.mark.timeout(seconds(1800))
async def test_of_simultaneous_messages_one_is_taken_and_the_others_are_told(site: Site) -> None:
    """Red with the build that checks for a busy thread without a condition: see the next test."""
    assert await rejecting_rounds(site) == []


@pytest.mark.chaos
@pytest.mark.timeout(seconds(600))
async def test_the_experiment_finds_out_a_check_without_a_condition(site: Site) -> None:
    assert await rejecting_rounds(site, f"broken={BUSY_CHECK_WITHOUT_CONDITION}")


@pytest.mark.timeout(seconds(1800))
async def test_queued_messages_run_one_after_the_other_in_the_order_of_their_acceptance(
    site: Site,
) -> None:
    """Red with the build that starts what is queued at the owner's next look at its own memory."""
    instances = [await site.start() for _ in range(3)]
    for round_ in range(ROUNDS):
        thread_id = f"t{round_}"
        accepted, refusals = await post_at_once(instances, thread_id, round_, "say", "enqueue")
        assert (len(accepted), refusals) == (POSTS, [])
        for run_id in accepted:
            assert (await site.settled(thread_id, run_id)).phase is RunStatus.COMPLETED
        log = await site.store.events_after(thread_id, 0, 10_000)
        taken = [e.run_id for e in log if isinstance(e, RunQueued | RunStarted) and e.message]
        started = [event.run_id for event in log if isinstance(event, RunStarted)]
        assert started == taken
        turns = [[said["content"] for said in prompt] for prompt in site.model.prompts]
        texts = {run_id: f"say {run_id.removeprefix('r')}" for run_id in started}
        history: list[str] = []
        for run_id in started:
            history.append(texts[run_id])
            assert history in turns
            history.append("all done")


async def test_a_queued_message_cancelled_as_it_starts_is_either_run_or_cancelled(
    site: Site,
) -> None:
    """Red with the build that starts the next run without the condition that it still waits."""
    instances = [await site.start() for _ in range(2)]
    for round_ in range(trials(full=100, small=5)):
        thread_id = f"t{round_}"
        site.model.gate.clear()
        first, second = f"first-{round_}", f"second-{round_}"
        await instances[0].ask("start", thread_id=thread_id, run_id=first, text="hold")
        await instances[1].ask(
            "start", thread_id=thread_id, run_id=second, text="say", on_busy="enqueue"
        )
        site.model.gate.set()
        cancel = instances[1].send("cancel", thread_id=thread_id, run_id=second)
        assert (await site.settled(thread_id, first)).phase is RunStatus.COMPLETED
        refused = isinstance((await asyncio.gather(cancel, return_exceptions=True))[0], Refused)
        run = await site.settled(thread_id, second)
        assert run.phase is (RunStatus.COMPLETED if refused else RunStatus.CANCELLED)
