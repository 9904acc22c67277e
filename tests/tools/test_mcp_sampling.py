"""A real MCP server that asks for a model's answer: a person sees what is sent, and decides."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.calls.completions import DO_NOT_SEND, SEND
from sk_agents.engine.events import ApprovalRequested
from sk_agents.engine.models import RunStatus, Usage
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.testing import ScriptedModel
from sk_agents.testing.scripted_model import calls, says
from tests.engine.kit import Talk
from tests.tools.mcp_servers.running import friendly, friendly_http
from tests.tools.test_mcp_engine import talk_with

WAYS = ["stdio", "old stdio", "http", "old http", "sse"]
PRAISE = calls(("mcp_friendly-praise", {"about": "the sea"}))
FREELY = {"tool_governance_overrides": {"praise": {"requires_hitl": False}}}
OLD = {"protocol_version": "2025-11-25"}


async def entry(way: str, folder: Path, stack: AsyncExitStack, **fields: Any) -> dict[str, Any]:
    """Of the friendly server, reached in this way."""
    fields = {**FREELY, **(OLD if way.startswith("old ") else {}), **fields}
    kind = way.removeprefix("old ")
    if kind == "stdio":
        return friendly(folder, **fields)
    return await stack.enter_async_context(friendly_http(folder, way=kind, **fields))


async def asked(talk: Talk) -> ApprovalRequested:
    await talk.say()
    state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
    (approval,) = state.run("r1").pending_approvals
    return approval.request


@pytest.mark.parametrize("way", WAYS)
async def test_server_gets_the_models_answer_once_a_person_has_seen_what_is_sent(
    tmp_path: Path, way: str
) -> None:
    used = Usage(prompt_tokens=6, completion_tokens=4)
    poem = [TextDelta("O sea! THE END and more"), TurnFinished("stop", used, model="bard-1")]
    async with AsyncExitStack() as stack:
        server = await entry(way, tmp_path, stack)
        async with talk_with(tmp_path, [PRAISE, poem, says("done")], server) as (talk, _):
            question = await asked(talk)
            assert question.kind == "question"
            shown = question.shown["arguments"]["question"]
            assert shown.startswith("The MCP server 'friendly' asks this agent's model")
            assert "at most 60 tokens" in shown
            assert shown.endswith("system:\nYou are a poet.\n\nuser:\nPraise the sea.")
            await talk.decide(question.approval_id, answer=SEND)
            run = await talk.ended("r1")
            assert run.status is RunStatus.COMPLETED
            assert run.usage.total_tokens == used.total_tokens
            assert await talk.results("r1") == ["bard-1 says: O sea!  (stopSequence)"]
            assert isinstance(talk.model, ScriptedModel)
            sent = talk.model.prompts[1]
            assert [(one.role, one.content) for one in sent.messages] == [
                ("system", "You are a poet."),
                ("user", "Praise the sea."),
            ]
            assert (sent.max_tokens, sent.tools) == (60, ())


@pytest.mark.parametrize("way", WAYS)
async def test_server_is_told_that_the_user_did_not_want_it(tmp_path: Path, way: str) -> None:
    async with AsyncExitStack() as stack:
        server = await entry(way, tmp_path, stack)
        async with talk_with(tmp_path, [PRAISE, says("done")], server) as (talk, _):
            await talk.decide((await asked(talk)).approval_id, answer=DO_NOT_SEND)
            assert (await talk.ended("r1")).status is RunStatus.COMPLETED
            (told,) = await talk.results("r1")
            assert told is not None
            assert "The user does not want this to be sent to the model." in told
            assert len(talk.prompts) == 2


@pytest.mark.parametrize("way", ["stdio", "old stdio"])
async def test_server_with_sampling_off_may_not_ask(tmp_path: Path, way: str) -> None:
    async with AsyncExitStack() as stack:
        server = await entry(way, tmp_path, stack, sampling="off")
        async with talk_with(tmp_path, [PRAISE, says("done")], server) as (talk, _):
            assert (await talk.ask()).status is RunStatus.COMPLETED
            (told,) = await talk.results("r1")
            assert told is not None and "sampling" in told.lower()
            assert len(talk.prompts) == 2


@pytest.mark.parametrize(
    ("arguments", "env", "why"),
    [
        ({"about": "x", "kind": "picture"}, {}, "Only texts can be sent to the model."),
        ({"about": "x" * 40_000}, {}, "No more than 32768 bytes can be sent"),
        ({"about": "x"}, {"MOST": "0"}, "maxTokens must be at least 1."),
    ],
)
async def test_what_cannot_be_shown_and_sent_is_refused_with_the_reason(
    tmp_path: Path, arguments: dict[str, Any], env: dict[str, str], why: str
) -> None:
    script = [calls(("mcp_friendly-praise", arguments)), says("done")]
    server = friendly(tmp_path, env=env, **FREELY)
    async with talk_with(tmp_path, script, server) as (talk, _):
        assert (await talk.ask()).status is RunStatus.COMPLETED
        (told,) = await talk.results("r1")
        assert told is not None and why in told
