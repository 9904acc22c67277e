"""A second message while the first is being answered, and the same message twice."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.events import RunQueued, RunStarted
from sk_agents.engine.models import RunStatus
from sk_agents.engine.turns import TextDelta
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    InvalidInput,
    LimitExceeded,
    ThreadBusy,
    ThreadNotFound,
)
from sk_agents.testing.scripted_model import calls, says
from tests.engine.kit import UNSWEPT, Script, Talk, endings, talking
from tests.engine.openai_rules import problems
from tests.requirements import requirement


def gated(text: str) -> tuple[asyncio.Event, list[Any]]:
    gate = asyncio.Event()
    return gate, [gate, *says(text)]


def said(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "user"]


async def test_second_message_is_refused_with_the_run_that_is_active(tmp_path: Path) -> None:
    gate, turn = gated("one")
    async with talking(tmp_path, script=[turn, says("two")]) as talk:
        await talk.say("1")
        with pytest.raises(ThreadBusy) as refused:
            await talk.say("2")
        assert refused.value.run_id == "r1"
        gate.set()
        await talk.ended("r1")
        assert (await talk.ask("3")).status is RunStatus.COMPLETED
        assert said(talk.prompts[-1]) == ["1", "3"]


async def test_waiting_run_keeps_the_thread_busy_too(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[calls(("Mail-send", {}))]) as talk:
        await talk.ask("1")
        await talk.parked()
        with pytest.raises(ThreadBusy):
            await talk.say("2")


async def test_queued_messages_run_in_order_and_see_exactly_the_earlier_turns(
    tmp_path: Path,
) -> None:
    gate, turn = gated("answer 1")
    script = [turn, *(says(f"answer {n}") for n in range(2, 6))]
    async with talking(tmp_path, script=script) as talk:
        await talk.say("1")
        for number in range(2, 6):
            accepted = await talk.say(str(number), on_busy="enqueue")
            assert accepted.queued == number - 1
        places = [event.position for event in await talk.log() if isinstance(event, RunQueued)]
        assert places == [1, 2, 3, 4]
        gate.set()
        assert (await talk.ended("r5")).status is RunStatus.COMPLETED
        for number, prompt in enumerate(talk.prompts, 1):
            assert said(prompt) == [str(n) for n in range(1, number + 1)]
            answers = [m["content"] for m in prompt if m["role"] == "assistant"]
            assert answers == [f"answer {n}" for n in range(1, number)]
            assert problems(prompt) == []


async def test_queue_behind_a_waiting_run_moves_on_when_it_is_cancelled(tmp_path: Path) -> None:
    """At once: no sweep comes by."""
    script = [calls(("Mail-send", {})), says("two")]
    async with talking(tmp_path, script=script, lease_ttl=UNSWEPT) as talk:
        await talk.ask("1")
        await talk.parked()
        await talk.say("2", on_busy="enqueue")
        await talk.cancel("r1")
        assert (await talk.ended("r2")).status is RunStatus.COMPLETED
        assert problems(talk.prompts[-1]) == []


async def test_message_queued_behind_a_waiting_run_can_be_cancelled(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[calls(("Mail-send", {})), says("one")]) as talk:
        await talk.ask("1")
        await talk.parked()
        await talk.say("2", on_busy="enqueue")
        assert await talk.cancel("r2") is RunStatus.CANCELLED
        head = await talk.store.thread("t")
        assert (head.queued, head.runnable, head.active_run) == (0, False, "r1")
        (approval_id,) = await talk.approvals("r1")
        await talk.decide(approval_id)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        await talk.parked()
        head = await talk.store.thread("t")
        assert (head.queued, head.runnable, head.active_run) == (0, False, None)


async def test_hundred_and_first_waiting_message_is_refused(tmp_path: Path) -> None:
    gate, turn = gated("one")
    async with talking("memory:", script=[turn, *(says("x") for _ in range(100))]) as talk:
        await talk.say("1")
        for _ in range(100):
            await talk.say("more", on_busy="enqueue")
        with pytest.raises(LimitExceeded):
            await talk.say("too much", on_busy="enqueue")
        gate.set()
        assert (await talk.ended("r101")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("waits", [False, True])
async def test_interrupt_cancels_the_active_run_and_starts(tmp_path: Path, waits: bool) -> None:
    first = calls(("Mail-send", {})) if waits else [TextDelta("blah"), asyncio.Event()]
    async with talking(tmp_path, script=[first, says("two")]) as talk:
        accepted = await talk.say("1")
        if waits:
            await talk.result(accepted)
            (approval_id,) = await talk.approvals("r1")
        second = await talk.ask("2", on_busy="interrupt")
        assert second.status is RunStatus.COMPLETED
        log = await talk.log()
        assert endings(log) == [RunStatus.CANCELLED, RunStatus.COMPLETED]
        if waits:
            with pytest.raises(ApprovalAlreadyDecided):
                await talk.decide(approval_id)
        assert problems(talk.prompts[-1]) == []


async def start_many(talk: Talk, count: int, **fields: Any) -> list[Any]:
    return await asyncio.gather(
        *(talk.say(str(number), **fields) for number in range(count)), return_exceptions=True
    )


@pytest.mark.parametrize("is_new", [True, False])
async def test_of_fifty_messages_at_once_one_wins(tmp_path: Path, is_new: bool) -> None:
    gate, turn = gated("one")
    script: Script = [turn] if is_new else [says("zero"), turn]
    async with talking(tmp_path, script=script) as talk:
        if not is_new:
            await talk.ask()
        outcomes = await start_many(talk, 50)
        busy = [outcome for outcome in outcomes if isinstance(outcome, ThreadBusy)]
        assert len(busy) == 49
        (winner,) = [outcome for outcome in outcomes if outcome not in busy]
        assert {error.run_id for error in busy} == {winner.run_id}
        gate.set()
        assert (await talk.ended(winner.run_id)).status is RunStatus.COMPLETED


async def test_fifty_messages_at_once_all_run_in_the_order_they_were_taken(
    tmp_path: Path,
) -> None:
    script = [says(f"answer {number}") for number in range(50)]
    async with talking(tmp_path, script=script) as talk:
        outcomes = await start_many(talk, 50, on_busy="enqueue")
        assert [outcome for outcome in outcomes if isinstance(outcome, Exception)] == []
        state = await talk.until(
            lambda state: sum(r.status is RunStatus.COMPLETED for r in state.runs.values()) == 50
        )
        log = await talk.log()
        queued = [event.run_id for event in log if isinstance(event, RunQueued)]
        began = [event.run_id for event in log if isinstance(event, RunStarted)]
        assert [run_id for run_id in began if run_id in queued] == queued
        assert [run.run_id for run in state.branch()] == began
        for number, prompt in enumerate(talk.prompts):
            assert len(said(prompt)) == number + 1
            assert problems(prompt) == []
        current = None
        for event in log:
            if isinstance(event, RunStarted):
                current = event.run_id
            elif not isinstance(event, RunQueued):
                assert event.run_id == current


@requirement("S000-request-idempotency-key")
async def test_request_repeated_with_its_key_is_the_same_run(tmp_path: Path) -> None:
    gate, turn = gated("one")
    async with talking(tmp_path, script=[turn]) as talk:
        first = await talk.say("1", idempotency_key="k", request_digest="d")
        while_running = await talk.say("1", idempotency_key="k", request_digest="d")
        gate.set()
        run = await talk.result(while_running)
        later = await talk.say("1", idempotency_key="k", request_digest="d")
        assert {first.run_id, while_running.run_id, later.run_id, run.run_id} == {"r1"}
        assert (first.repeated, while_running.repeated, later.repeated) == (False, True, True)
        with pytest.raises(InvalidInput):
            await talk.say("2", idempotency_key="k", request_digest="other")
        log = await talk.log()
        assert len([event for event in log if isinstance(event, RunStarted)]) == 1


async def test_reader_of_a_run_gets_all_of_it_however_it_was_begun(tmp_path: Path) -> None:
    gate, turn = gated("two")
    script = [says("one"), turn, says("three"), says("four")]
    async with talking(tmp_path, script=script) as talk:
        key = {"idempotency_key": "k", "request_digest": "d"}
        accepted = [await talk.say("1", **key)]
        await talk.result(accepted[0])
        accepted.append(await talk.say("1", **key))
        accepted.append(await talk.say("2"))
        accepted.append(await talk.say("3", on_busy="enqueue"))
        gate.set()
        await talk.result(accepted[-1])
        accepted.append(await talk.edit("r1", "4"))
        await talk.result(accepted[-1])
        log = await talk.log()
        for one in accepted:
            whole = [event for event in log if event.run_id == one.run_id]
            assert await talk.items(one) == whole


@pytest.mark.parametrize("is_new", [True, False])
async def test_eight_duplicates_at_once_are_one_run(tmp_path: Path, is_new: bool) -> None:
    async with talking(tmp_path, script=[says("0"), says("1")]) as talk:
        if not is_new:
            await talk.ask("before")
        accepted = await start_many(talk, 8, idempotency_key="k", request_digest="d")
        assert len({outcome.run_id for outcome in accepted}) == 1
        assert sum(not outcome.repeated for outcome in accepted) == 1
        run = await talk.result(accepted[0])
        assert run.status is RunStatus.COMPLETED
        log = await talk.log()
        assert len([e for e in log if isinstance(e, RunStarted)]) == 1 + (not is_new)


async def test_key_of_another_user_is_unrelated(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("a"), says("b")]) as talk:
        await talk.ask("mine", idempotency_key="k", request_digest="d")
        with pytest.raises(ThreadNotFound):
            await talk.say("theirs", user_id="bob", idempotency_key="k", request_digest="d")


async def test_run_id_that_is_taken_is_refused(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("a"), says("b")]) as talk:
        await talk.ask("1")
        with pytest.raises(InvalidInput):
            await talk.say("2", run_id="r1")
        assert (await talk.ask("3")).status is RunStatus.COMPLETED


@requirement("S004-4.4-resume")
async def test_each_turn_starts_from_where_the_last_one_ended(tmp_path: Path) -> None:
    script = [calls(("Files-look", {"text": "x"})), says("one"), says("two")]
    async with talking(tmp_path, script=script, http=True) as talk:
        await talk.ask("1")
        await talk.ask("2")
        before, after = talk.prompts[1], talk.prompts[2]
        assert after[: len(before)] == before
        assert [m["role"] for m in after[len(before) :]] == ["assistant", "user"]
