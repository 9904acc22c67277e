"""MCP servers that are lost in the middle of a call: what nobody can know is asked about."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.events import Event, ToolFinished, ToolOutcomeUnknown, ToolStarted
from sk_agents.engine.models import RunStatus
from sk_agents.exceptions import ToolError, ToolInterrupted
from sk_agents.testing.scripted_model import calls, says
from tests.engine.kit import Talk
from tests.patience import seconds
from tests.tools.calls import result
from tests.tools.mcp_servers.running import friendly_http, held_port, hostile, running, until
from tests.tools.test_mcp_engine import GO, talk_with

FREE = {"tool_governance_overrides": {"go": {"requires_hitl": False}}}
FREE_TO_DIE = {"tool_governance_overrides": {"die": {"requires_hitl": False}}}
DIE = calls(("mcp_friendly-die", {}))
OLD = {"protocol_version": "2025-11-25"}


async def asked_outcome(talk: Talk) -> str:
    """The approval in which a run ends up whose call was lost."""
    run = await talk.ask()
    assert run.status is RunStatus.WAITING
    (asked,) = run.pending_approvals
    assert asked.request.kind == "outcome_unknown"
    assert asked.request.choices == ("done", "retry", "give_up")
    return asked.request.approval_id


def of_kind(events: list[Event], kind: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize(
    ("choice", "told", "times"),
    [("done", "the user confirmed", 1), ("retry", "went", 2), ("give_up", "gave up", 1)],
)
async def test_call_lost_with_its_server_is_settled_as_the_person_says(
    tmp_path: Path, choice: str, told: str, times: int
) -> None:
    entry = hostile(tmp_path, "dies once", **FREE)
    async with talk_with(tmp_path, [GO, says("Well.")], entry) as (talk, at):
        approval = await asked_outcome(talk)
        (unknown,) = of_kind(await talk.log(), ToolOutcomeUnknown)
        assert unknown.reason == "interrupted"
        assert await talk.results("r1") == [None]
        await talk.decide(approval, choice=choice)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        (text,) = await talk.results("r1")
        assert text is not None and told in text
        assert at.notes.count("called") == times


@pytest.mark.parametrize("mode", ["huge"])
async def test_call_whose_connection_was_reset_is_asked_about(tmp_path: Path, mode: str) -> None:
    async with talk_with(tmp_path, [GO], hostile(tmp_path, mode, **FREE)) as (talk, at):
        await asked_outcome(talk)
        assert at.notes.count("called") == 1


@pytest.mark.parametrize("kind", ["reading", "repeatable"])
async def test_harmless_call_lost_with_its_server_is_started_once_more(
    tmp_path: Path, kind: str
) -> None:
    entry = hostile(tmp_path, f"dies once {kind}", trust_level="trusted", **FREE)
    async with talk_with(tmp_path, [GO, says("Well.")], entry) as (talk, at):
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["went"]
        starts = of_kind(await talk.log(), ToolStarted)
        assert [start.attempt for start in starts] == [1, 2]
        assert len({start.idempotency_key for start in starts}) == 1
        assert at.notes.count("called") == 2


@pytest.mark.parametrize(
    ("kind", "has_doubt"), [("dies reading", False), ("dies repeatable", True)]
)
async def test_harmless_call_that_is_lost_twice_is_an_error(
    tmp_path: Path, kind: str, has_doubt: bool
) -> None:
    entry = hostile(tmp_path, kind, trust_level="trusted", **FREE)
    async with talk_with(tmp_path, [GO, says("Well.")], entry) as (talk, at):
        assert (await talk.ask()).status is RunStatus.COMPLETED
        (finished,) = of_kind(await talk.log(), ToolFinished)
        assert finished.outcome == "error"
        assert "was lost while the tool ran" in finished.result
        assert ("not known" in finished.result) is has_doubt
        assert at.notes.count("called") == 2


@pytest.mark.parametrize("fields", [{}, OLD])
async def test_call_lost_with_its_server_over_http_is_asked_about(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    more: dict[str, Any] = {**FREE_TO_DIE, **fields}
    async with friendly_http(tmp_path, **more) as entry:
        async with talk_with(tmp_path, [DIE, says("Well.")], entry) as (talk, _):
            await talk.decide(await asked_outcome(talk), choice="give_up")
            assert (await talk.ended("r1")).status is RunStatus.COMPLETED


@pytest.mark.parametrize("fields", [{}, OLD])
async def test_call_to_a_server_that_is_gone_is_an_error_and_nothing_was_sent(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    more = {"trust_level": "trusted", "request_timeout": 4, **FREE_TO_DIE, **fields}
    async with friendly_http(tmp_path, **more) as entry:
        script = [DIE, says("Well.")]
        talking = talk_with(tmp_path, script, entry)
        talk, _ = await talking.__aenter__()
    try:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        (told,) = await talk.results("r1")
        assert told is not None and "Nothing was run" in told
    finally:
        await talking.__aexit__(None, None, None)


async def test_call_that_a_restarted_server_does_not_take_is_an_error(tmp_path: Path) -> None:
    more = {"trust_level": "trusted", **OLD}
    with held_port() as port:
        async with friendly_http(tmp_path, port, **more) as entry:
            serving = running(tmp_path, entry)
            at = await serving.__aenter__()
        try:
            async with friendly_http(tmp_path, port, **more), asyncio.timeout(seconds(30)):
                with pytest.raises(ToolError, match="Nothing was run") as refused:
                    await result(at.box, "mcp_friendly-wipe")
                assert not isinstance(refused.value, ToolInterrupted)
                assert "wiped" not in at.notes
                await until(lambda: at.status["status"] == "up")
                assert (await result(at.box, "mcp_friendly-wipe")).content == "wiped"
        finally:
            await serving.__aexit__(None, None, None)
