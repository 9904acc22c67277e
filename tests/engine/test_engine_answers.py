"""Questions to the user: a tool that is one, and one that a running tool asks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.calls.call import Approval
from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import RunStatus
from sk_agents.engine.turns import Question, ToolContext
from sk_agents.exceptions import InvalidInput
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import LOOK, FakeTools, tool
from tests.engine.kit import Talk, talking

ASK = [calls(("User-ask", {"question": "Which one?", "choices": ["red", "blue"]})), says("ok")]
BAD_ANSWERS: list[dict[str, Any]] = [
    {},
    {"answer": "green"},
    {"answer": "red", "remember": "run"},
]
RUN = [calls(("Mail-send", {"text": "x"})), says("ok")]


async def told(arguments: dict[str, Any], context: ToolContext) -> str:
    return f"The user says: {context.answer}"


def asking() -> FakeTools:
    fake = tool("User-ask", told)
    return FakeTools(replace(fake, spec=replace(fake.spec, question=True)), LOOK)


async def pending(talk: Talk, kind: str = "question") -> str:
    """The one approval of this kind that the run waits for."""
    state = await talk.until(lambda state: [a.request.kind for a in _waits(state)] == [kind])
    return _waits(state)[0].request.approval_id


def _waits(state: ThreadState) -> list[Approval]:
    return state.runs["r1"].pending_approvals if "r1" in state.runs else []


async def answered(talk: Talk, **decision: Any) -> str:
    """What the model is told once the run's one question is decided so."""
    await talk.decide(await pending(talk), **decision)
    await talk.ended("r1")
    return str(talk.prompts[-1][-1]["content"])


async def test_yes_is_no_answer_to_a_question_that_may_be_answered_freely(tmp_path: Path) -> None:
    script = [calls(("User-ask", {"question": "Which one?"})), says("ok")]
    async with talking(tmp_path, script=script, tools=asking()) as talk:
        await talk.say()
        approval_id = await pending(talk)
        with pytest.raises(InvalidInput, match="needs an answer"):
            await talk.decide(approval_id)
        assert await talk.approvals("r1") == [approval_id]


async def test_the_answer_to_a_question_is_its_result(tmp_path: Path) -> None:
    async with talking(tmp_path, script=ASK, tools=asking()) as talk:
        run = await talk.ask()
        (approval,) = run.pending_approvals
        assert (run.status, approval.request.kind) == (RunStatus.WAITING, "question")
        assert approval.request.choices == ("red", "blue")
        assert await answered(talk, answer="blue") == "The user says: blue"


@pytest.mark.parametrize("decision", BAD_ANSWERS)
async def test_a_question_needs_one_of_its_answers(
    tmp_path: Path, decision: dict[str, Any]
) -> None:
    async with talking(tmp_path, script=ASK, tools=asking()) as talk:
        await talk.ask()
        with pytest.raises(InvalidInput):
            await talk.decide(await pending(talk), **decision)
        assert await answered(talk, answer="red") == "The user says: red"


async def test_a_declined_question_lets_the_run_go_on(tmp_path: Path) -> None:
    async with talking(tmp_path, script=ASK, tools=asking(), on_reject="cancel") as talk:
        await talk.ask()
        text = await answered(talk, approved=False, message="not now")
        assert text == "The user did not want to answer: not now."


LIMIT = 0.05


async def asks(arguments: dict[str, Any], context: ToolContext) -> str:
    assert context.ask is not None
    return f"got {await context.ask(Question('Which one?', schema={'type': 'string'}))}"


async def hangs(arguments: dict[str, Any], context: ToolContext) -> str:
    await asyncio.Event().wait()
    return "never"


def slow_tools() -> FakeTools:
    """Two tools with the same time: one asks, the other shows that the time is over."""
    return FakeTools(
        tool("Mail-send", asks, timeout=LIMIT), tool("Mail-hang", hangs, timeout=LIMIT)
    )


async def test_a_running_tool_gets_its_answer_however_long_that_takes(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {}), ("Mail-hang", {})), says("ok")]
    async with talking(tmp_path, script=script, tools=slow_tools()) as talk:
        await talk.say()
        state = await talk.until(lambda state: bool(_waits(state)) and _is_over(state, "Mail-hang"))
        (approval,) = _waits(state)
        assert approval.request.shown["arguments"]["question"] == "Which one?"
        assert approval.request.answer_schema == {"type": "string"}
        await talk.decide(approval.request.approval_id, answer="red")
        await talk.ended("r1")
        assert "got red" in [message["content"] for message in talk.prompts[-1]]


def _is_over(state: ThreadState, name: str) -> bool:
    calls = state.runs["r1"].calls.values()
    return any(call.finished and call.wanted.name == name for call in calls)


async def test_cancelling_ends_a_tool_that_waits_for_an_answer(tmp_path: Path) -> None:
    async with talking(tmp_path, script=RUN, tools=slow_tools()) as talk:
        await talk.say()
        await pending(talk)
        await talk.cancel("r1")
        run = await talk.ended("r1")
        assert run.phase is RunStatus.CANCELLED
