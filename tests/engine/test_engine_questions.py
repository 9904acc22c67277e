"""A call whose outcome nobody knows: a person says, and nothing is guessed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.events import (
    ToolFinished,
)
from sk_agents.engine.models import CallState, Effect, RunStatus
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    InvalidInput,
)
from tests.engine.fake_tools import LOOK, FakeTools, tool
from tests.engine.kit import SEND_X, Talk, is_asked_anew, talking, waiting


async def of_unknown_outcome(talk: Talk) -> str:
    """The question about a call that ran into its limit."""
    await talk.decide(await waiting(talk))
    state = await talk.until(
        lambda state: (
            bool(state.run("r1").pending_approvals)
            and next(iter(state.run("r1").calls.values())).state is CallState.UNKNOWN
        )
    )
    (approval,) = state.run("r1").pending_approvals
    assert approval.request.kind == "outcome_unknown"
    return approval.request.approval_id


class Hanging:
    """Hangs at first, answers when it is called again."""

    def __init__(self) -> None:
        self.executions = 0

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.executions += 1
        if self.executions == 1:
            await asyncio.Event().wait()
        return "answered"

    @property
    def box(self) -> FakeTools:
        return FakeTools(tool("Mail-send", self, effect=Effect.AT_MOST_ONCE, timeout=0.05), LOOK)


@pytest.mark.parametrize(
    ("decision", "told", "executions", "outcome"),
    [
        ({"choice": "done"}, "the user confirmed", 1, "ok"),
        ({"choice": "retry"}, "answered", 2, "ok"),
        ({"choice": "give_up"}, "the user gave up", 1, "error"),
        ({"approved": False}, "the user gave up", 1, "error"),
    ],
)
async def test_question_about_an_unknown_outcome_is_settled_as_the_person_says(
    tmp_path: Path, decision: dict[str, Any], told: str, executions: int, outcome: str
) -> None:
    hanging = Hanging()
    async with talking(tmp_path, script=SEND_X, tools=hanging.box) as talk:
        await talk.decide(await of_unknown_outcome(talk), **decision)
        run = await talk.ended("r1")
        assert run.status is RunStatus.COMPLETED
        assert told in talk.prompts[1][-1]["content"]
        assert hanging.executions == executions
        finished = next(e for e in await talk.log() if isinstance(e, ToolFinished))
        assert finished.outcome == outcome


@pytest.mark.parametrize(
    "verb", [{}, {"choice": "retry", "edited_arguments": {}}, {"choice": "done", "remember": "run"}]
)
async def test_verb_that_does_not_fit_the_question_is_refused_and_it_stays_open(
    tmp_path: Path, verb: dict[str, Any]
) -> None:
    async with talking(tmp_path, script=SEND_X, tools=Hanging().box) as talk:
        question = await of_unknown_outcome(talk)
        with pytest.raises(InvalidInput):
            await talk.decide(question, **verb)
        assert await talk.approvals("r1") == [question]


async def test_retry_of_a_tool_that_changed_is_asked_about_again(tmp_path: Path) -> None:
    hanging = Hanging()
    async with talking(tmp_path, script=SEND_X, tools=hanging.box) as talk:
        question = await of_unknown_outcome(talk)
        talk.tools.redefine("Mail-send", "d2")
        await talk.decide(question, choice="retry")
        state = await talk.until(is_asked_anew(question))
        (approval,) = state.run("r1").pending_approvals
        assert approval.request.kind == "outcome_unknown"
        assert hanging.executions == 1


async def test_approval_repeated_after_its_outcome_became_unknown_is_answered_as_before(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=SEND_X, tools=Hanging().box) as talk:
        approval_id = await waiting(talk)
        await talk.decide(approval_id, idempotency_key="k")
        await talk.until(is_asked_anew(approval_id))
        assert await talk.decide(approval_id, idempotency_key="k") is False
        with pytest.raises(ApprovalAlreadyDecided) as refused:
            await talk.decide(approval_id)
        assert refused.value.outcome == "approved"
