"""MCP tools in an engine's hands: what waits for a person, what a bad server does to a run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from sk_agents.engine.models import RunStatus
from sk_agents.exceptions import InvalidInput
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.testing.scripted_model import calls, says
from tests.engine.kit import Talk, talking
from tests.patience import seconds
from tests.tools.mcp_servers.running import Running, friendly, hostile, running

GO = calls(("mcp_hostile-go", {}))
SWAPS = 10


@asynccontextmanager
async def talk_with(
    folder: Path, script: list[Any], *entries: dict[str, Any]
) -> AsyncIterator[tuple[Talk, Running]]:
    async with asyncio.timeout(seconds(60)), running(folder, *entries) as at:
        policy = cast(Any, ApprovalPolicy(declared=at.box.requires_approval))
        tools = cast(Any, at.box)
        async with talking(folder, script=script, tools=tools, policy=policy) as talk:
            yield talk, at


async def test_definition_swapped_between_question_and_yes_is_never_run(tmp_path: Path) -> None:
    script = [turn for _ in range(SWAPS) for turn in (GO, says("I could not."))]
    async with talk_with(tmp_path, script, hostile(tmp_path, "swapping")) as (talk, at):
        for number in range(1, SWAPS + 1):
            assert (await talk.ask()).status is RunStatus.WAITING
            (approval,) = await talk.approvals(f"r{number}")
            (tmp_path / "definition").write_text(f"Goes to {number}.")
            await talk.decide(approval)
            await talk.ended(f"r{number}")
            (told,) = await talk.results(f"r{number}")
            assert told is not None and "tool_definition_changed" in told
            await at.servers.repin("hostile")
        assert "called" not in at.notes


async def test_question_of_a_server_is_an_approval_of_its_own_kind(tmp_path: Path) -> None:
    script = [calls(("mcp_friendly-greet", {})), says("done")]
    entry = friendly(tmp_path, tool_governance_overrides={"greet": {"requires_hitl": False}})
    async with talk_with(tmp_path, script, entry) as (talk, _):
        assert (await talk.ask()).status is RunStatus.WAITING
        state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        (asked,) = state.run("r1").pending_approvals
        assert asked.request.kind == "question"
        assert asked.request.answer_schema is not None
        for answer in ({"name": 7}, {"nom": "Ada"}, 7):
            with pytest.raises(InvalidInput, match="name"):
                await talk.decide(asked.request.approval_id, answer=answer)
        assert await talk.approvals("r1") == [asked.request.approval_id]
        await talk.decide(asked.request.approval_id, answer={"name": "Ada"})
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["hello Ada"]


async def test_call_without_an_answer_becomes_a_question_and_other_runs_go_on(
    tmp_path: Path,
) -> None:
    entry = hostile(
        tmp_path,
        "mute",
        request_timeout=1,
        tool_governance_overrides={"go": {"requires_hitl": False}},
    )
    script = [GO, says("other"), says("done")]
    async with talk_with(tmp_path, script, entry) as (talk, at):
        stuck = await talk.say()
        await talk.until(lambda state: bool(state.run("r1").calls))
        other = await talk.say(thread="u")
        assert (await talk.result(other)).status is RunStatus.COMPLETED
        assert (await talk.result(stuck)).status is RunStatus.WAITING
        (approval,) = await talk.approvals("r1")
        await talk.decide(approval, choice="give_up")
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert at.notes.count("called") == 1


async def test_changing_tool_of_a_server_that_is_not_trusted_is_asked_about(tmp_path: Path) -> None:
    script = [calls(("mcp_friendly-echo", {"text": "x"})), says("done")]
    async with talk_with(tmp_path, script, friendly(tmp_path)) as (talk, _):
        assert (await talk.ask()).status is RunStatus.WAITING
        (approval,) = await talk.approvals("r1")
        await talk.decide(approval)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["x"]
