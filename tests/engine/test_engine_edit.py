"""Saying something else instead: a new branch, the old one untouched."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import RunStatus
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    InvalidInput,
    RunNotFound,
    ThreadBusy,
    ThreadNotFound,
)
from sk_agents.testing.scripted_model import calls, says
from tests.engine.kit import THREAD, talking
from tests.engine.openai_rules import problems
from tests.requirements import requirement


def said(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "user"]


@requirement("S004-3.5-previous-state", "S004-3.5-superseded")
async def test_edit_starts_a_sibling_and_the_prompt_holds_only_its_branch(tmp_path: Path) -> None:
    script = [says(f"answer {n}") for n in range(1, 6)]
    async with talking(tmp_path, script=script, http=True) as talk:
        for text in ("1", "2", "3"):
            await talk.ask(text)
        before = await talk.log()
        run = await talk.result(await talk.edit("r2", "2b"))
        assert run.status is RunStatus.COMPLETED
        assert (run.parent_run, run.edits) == ("r1", "r2")
        assert said(talk.prompts[3]) == ["1", "2b"]
        assert (await talk.log())[: len(before)] == before
        state = await talk.until(lambda state: True)
        assert [r.run_id for r in state.branch()] == ["r1", "r4"]
        assert {state.run(r).status for r in ("r2", "r3")} == {RunStatus.COMPLETED}
        await talk.ask("4")
        assert said(talk.prompts[4]) == ["1", "2b", "4"]
        assert all(problems(prompt) == [] for prompt in talk.prompts)


@requirement("S004-3.5-first")
async def test_edit_of_the_first_message_starts_from_nothing(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("a"), says("b"), says("c")]) as talk:
        await talk.ask("1")
        await talk.ask("2")
        run = await talk.result(await talk.edit("r1", "1b"))
        assert run.parent_run is None
        assert said(talk.prompts[2]) == ["1b"]


async def test_regenerate_repeats_the_message_and_a_superseded_run_can_be_edited(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=[says("a"), says("b"), says("c")]) as talk:
        await talk.ask("1")
        again = await talk.result(await talk.edit("r1"))
        assert again.answer is not None and again.answer.content == "b"
        third = await talk.result(await talk.edit("r1", "1c"))
        assert third.status is RunStatus.COMPLETED
        assert [said(prompt) for prompt in talk.prompts] == [["1"], ["1"], ["1c"]]


async def test_of_sixteen_edits_at_once_one_wins(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, script=[says("a"), [gate, *says("b")]]) as talk:
        await talk.ask("1")
        outcomes: list[Any] = await asyncio.gather(
            *(talk.edit("r1", str(number)) for number in range(16)), return_exceptions=True
        )
        busy = [outcome for outcome in outcomes if isinstance(outcome, ThreadBusy)]
        assert len(busy) == 15
        gate.set()
        (winner,) = [outcome for outcome in outcomes if outcome not in busy]
        assert (await talk.ended(winner.run_id)).status is RunStatus.COMPLETED
        state = await talk.until(lambda state: True)
        assert [run.run_id for run in state.branch()] == [winner.run_id]


@pytest.mark.parametrize("waits", [False, True])
async def test_edit_of_a_busy_thread_is_refused_unless_it_may_interrupt(
    tmp_path: Path, waits: bool
) -> None:
    second = calls(("Mail-send", {})) if waits else [asyncio.Event()]
    async with talking(tmp_path, script=[says("a"), second, says("c")]) as talk:
        await talk.ask("1")
        accepted = await talk.say("2")
        if waits:
            await talk.result(accepted)
        pending = await talk.approvals("r2")
        with pytest.raises(ThreadBusy) as refused:
            await talk.edit("r1", "1b")
        assert refused.value.run_id == "r2"
        with pytest.raises(InvalidInput):
            await talk.edit("r1", "1b", on_busy="enqueue")
        edited = await talk.result(await talk.edit("r1", "1b", on_busy="interrupt"))
        assert edited.status is RunStatus.COMPLETED
        state = await talk.until(lambda state: True)
        assert state.run("r2").status is RunStatus.CANCELLED
        assert [run.run_id for run in state.branch()] == [edited.run_id]
        for approval_id in pending:
            with pytest.raises(ApprovalAlreadyDecided):
                await talk.decide(approval_id)
        assert talk.tools.started == []


async def test_edit_of_what_is_not_there_or_not_over_is_not_found(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("a")]) as talk:
        await talk.ask("1")
        with pytest.raises(RunNotFound):
            await talk.edit("r9", "x")
        with pytest.raises(ThreadNotFound):
            await talk.engine.thread(THREAD, "bob")


async def test_edit_keeps_what_was_asked_for_at_first_unless_it_says_otherwise(
    tmp_path: Path,
) -> None:
    schema, other = {"type": "object"}, {"type": "array"}
    async with talking(tmp_path, script=[says("{}")] * 4) as talk:
        await talk.ask("1", agent="a", on_disconnect="cancel", response_schema=schema)
        same = await talk.result(await talk.edit("r1"))
        assert (same.agent, same.on_disconnect, same.response_schema) == ("a", "cancel", schema)
        accepted = await talk.edit("r1", on_disconnect="continue", response_schema=other)
        changed = await talk.result(accepted)
        assert (changed.agent, changed.on_disconnect) == ("a", "continue")
        assert changed.response_schema == other
        plain = await talk.ask("2")
        assert (plain.agent, plain.on_disconnect, plain.response_schema) == (None, None, None)


async def test_edit_repeated_with_its_key_is_the_same_run(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("a"), says("b")]) as talk:
        await talk.ask("1")
        first = await talk.edit("r1", "x", idempotency_key="k", request_digest="d")
        again = await talk.edit("r1", "x", idempotency_key="k", request_digest="d")
        assert (again.run_id, again.repeated) == (first.run_id, True)
        assert (await talk.result(again)).status is RunStatus.COMPLETED
