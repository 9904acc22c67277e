"""A yes is to what was shown: of this call, of this tool as it was, to whoever it was shown."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.events import ApprovalRequested
from sk_agents.engine.models import Effect, RunStatus, ToolCall
from sk_agents.engine.turns import ToolContext
from sk_agents.persistence.memory.store import MemoryStore
from tests.chaos.tampering import opened
from tests.engine import builders as b
from tests.engine.fake_tools import SEND, FakeTools, tool
from tests.engine.kit import SEND_X, THREAD, Setup, is_asked_anew, talking, waiting
from tests.engine.test_engine_orphans import SENT, leave


async def test_edit_of_a_tool_that_changed_since_it_was_shown_is_asked_anew(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        talk.tools.redefine("Mail-send", "d2")
        await talk.decide(approval_id, edited_arguments={"text": "y"})
        await talk.until(is_asked_anew(approval_id))
        assert talk.tools.started == []
        asked = [event for event in await talk.log() if isinstance(event, ApprovalRequested)]
        assert [event.shown for event in asked] == [asked[0].shown] * 2
        assert asked[0].digest != asked[1].digest


async def test_retry_of_an_edited_call_runs_as_edited(tmp_path: Path) -> None:
    async def hang_once(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(tools.started) == 1:
            await asyncio.Event().wait()
        return "sent"

    send = tool("Mail-send", hang_once, effect=Effect.AT_MOST_ONCE, timeout=0.05)
    tools = FakeTools(send)
    async with talking(tmp_path, Setup(script=SEND_X, tools=tools)) as talk:
        approval_id = await waiting(talk)
        await talk.decide(approval_id, edited_arguments={"text": "y"})
        await talk.until(is_asked_anew(approval_id))
        (unknown,) = await talk.approvals("r1")
        await talk.decide(unknown, choice="retry")
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert tools.started == [("Mail-send", {"text": "y"})] * 2


@pytest.mark.parametrize(
    ("kind", "said"), [("auth", {"authorization": "Bearer x"}), ("question", {"answer": "yes"})]
)
async def test_answer_to_another_kind_of_question_is_no_yes_to_the_call(
    tmp_path: Path, kind: str, said: dict[str, Any]
) -> None:
    async with talking(tmp_path, script=SEND_X[:1]) as talk:
        approval_id = await waiting(talk)
        await talk.parked()
    with opened(tmp_path / "teal.sqlite", THREAD) as stored:
        stored.asked["kind"] = kind
    async with talking(tmp_path, script=SEND_X[1:], owner="b") as talk:
        await talk.decide(approval_id, **said)
        await talk.until(is_asked_anew(approval_id))
        assert talk.tools.started == []


class Previewing(FakeTools):
    """Of which each call has a preview."""

    async def preview(self, call: ToolCall, context: ToolContext) -> str | None:
        return "what it would do"


async def test_question_whether_a_call_has_taken_effect_shows_no_preview_of_it() -> None:
    store = MemoryStore()
    await leave(store, b.started(), SENT, b.tool_started())
    async with talking(store, tools=Previewing(SEND)) as talk:
        state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        (approval,) = state.run("r1").pending_approvals
        assert approval.request.kind == "outcome_unknown"
        assert approval.request.shown == {"tool_name": "Mail-send", "arguments": {}}
