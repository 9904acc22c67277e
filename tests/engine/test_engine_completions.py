"""A running tool that asks the agent's model: nothing is sent that a person has not seen."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.calls.completions import DO_NOT_SEND, MOST_BYTES, SEND
from sk_agents.engine.events import ApprovalRequested, RunEnded, ToolFinished
from sk_agents.engine.models import Effect, Message, Price, RunStatus, Usage
from sk_agents.engine.turns import Completion, Prompt, TextDelta, ToolContext
from sk_agents.exceptions import ModelError
from sk_agents.redaction import Redactor
from sk_agents.testing import ScriptedModel, SettableClock
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import FakePolicy, FakeTools, tool
from tests.engine.kit import BOUND, Setup, Talk, is_asked_anew, talking
from tests.engine.test_engine_budget import budget, options, spent

TEN = Usage(prompt_tokens=6, completion_tokens=4)
LOOK = calls(("Files-look", {"text": "x"}), usage=TEN)
MESSAGES = (
    Message(role="system", content="You are a poet."),
    Message(role="user", content="Praise the sea."),
)


def pondering(
    *messages: Message, max_tokens: int = 50, times: int = 1, effect: Effect = Effect.READ_ONLY
) -> FakeTools:
    """A tool that returns what the model says to these messages."""

    async def ponder(arguments: dict[str, Any], context: ToolContext) -> str:
        assert context.complete is not None
        said = ""
        for _ in range(times):
            wanted = Completion("The poet", messages or MESSAGES, max_tokens, 0.5)
            completed = await context.complete(wanted)
            said += f"{completed.text} ({completed.finish_reason})"
        return said

    return FakeTools(tool("Files-look", ponder, effect=effect))


def prompts(talk: Talk) -> list[Prompt]:
    assert isinstance(talk.model, ScriptedModel)
    return talk.model.prompts


async def asked(talk: Talk) -> ApprovalRequested:
    await talk.say()
    state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
    (approval,) = state.run("r1").pending_approvals
    return approval.request


async def test_model_gets_what_was_shown_and_nothing_else(tmp_path: Path) -> None:
    script = [LOOK, says("O sea!"), says("done")]
    async with talking(tmp_path, script=script, tools=pondering()) as talk:
        question = await asked(talk)
        assert question.kind == "question" and question.choices == (SEND, DO_NOT_SEND)
        shown = question.shown["arguments"]["question"]
        assert shown.startswith("The poet asks this agent's model for an answer of at most 50 ")
        assert shown.endswith("\n\nsystem:\nYou are a poet.\n\nuser:\nPraise the sea.")
        assert len(prompts(talk)) == 1
        await talk.decide(question.approval_id, answer=SEND)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        sent = prompts(talk)[1]
        assert tuple(sent.messages) == MESSAGES
        assert (sent.tools, sent.max_tokens, sent.temperature) == ((), 50, 0.5)
        assert await talk.results("r1") == ["O sea! (stop)"]


@pytest.mark.parametrize("decision", [{"answer": DO_NOT_SEND}, {"approved": False}])
async def test_nothing_is_sent_without_a_yes(tmp_path: Path, decision: dict[str, Any]) -> None:
    script = [LOOK, says("done")]
    async with talking(tmp_path, script=script, tools=pondering()) as talk:
        await talk.decide((await asked(talk)).approval_id, **decision)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert len(prompts(talk)) == 2
        (told,) = await talk.results("r1")
        assert told is not None and "not want" in told


async def test_what_the_model_used_is_charged_to_the_run(tmp_path: Path) -> None:
    script = [LOOK, says("O sea!", usage=TEN), says("O!", usage=TEN), says("done", usage=TEN)]
    both = budget(run="1000 tokens", day="1000 tokens")
    given = {"budget": both, "price": Price(1e6, 1e6, "USD"), **options()}
    async with talking(tmp_path, script=script, tools=pondering(times=2), **given) as talk:
        first = await asked(talk)
        await talk.decide(first.approval_id, answer=SEND)
        await talk.until(is_asked_anew(first.approval_id))
        (second,) = await talk.approvals("r1")
        await talk.decide(second, answer=SEND)
        run = await talk.ended("r1")
        assert await spent(talk) == {"day": 40}
        assert run.usage.total_tokens == 40
        assert run.usage.cost is not None and run.usage.cost.amount == 40.0
        log = await talk.log()
        (finished,) = [event for event in log if isinstance(event, ToolFinished)]
        assert finished.usage is not None and finished.usage.total_tokens == 20
        (ended,) = [event for event in log if isinstance(event, RunEnded)]
        assert ended.usage == run.usage


async def test_budget_that_is_too_small_keeps_the_model_from_being_asked(tmp_path: Path) -> None:
    script = [LOOK, says("done")]
    given = options(budget=budget(run="400 tokens"))
    box = pondering(Message(role="user", content="x" * 1600))
    async with talking(tmp_path, script=script, tools=box, **given) as talk:
        await talk.decide((await asked(talk)).approval_id, answer=SEND)
        await talk.ended("r1")
        (told,) = await talk.results("r1")
        assert told is not None and "budget" in told
        assert len(prompts(talk)) == 2


async def test_answer_is_no_longer_than_the_agent_allows(tmp_path: Path) -> None:
    script = [LOOK, says("O sea!"), says("done")]
    box = pondering(max_tokens=1_000_000)
    async with talking(tmp_path, script=script, tools=box, max_tokens=20) as talk:
        question = await asked(talk)
        assert "at most 20 tokens" in question.shown["arguments"]["question"]
        await talk.decide(question.approval_id, answer=SEND)
        await talk.ended("r1")
        assert prompts(talk)[1].max_tokens == 20


@pytest.mark.parametrize("size", [0, MOST_BYTES + 1])
async def test_what_nobody_would_read_is_refused_unasked(tmp_path: Path, size: int) -> None:
    messages = [Message(role="user", content="x" * size)] if size else []

    async def ponder(arguments: dict[str, Any], context: ToolContext) -> str:
        assert context.complete is not None
        return (await context.complete(Completion("The poet", tuple(messages), 50))).text

    box = FakeTools(tool("Files-look", ponder))
    async with talking(tmp_path, script=[LOOK, says("done")], tools=box) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        (told,) = await talk.results("r1")
        assert told is not None and "sent to the model" in told


@pytest.mark.parametrize("turn", [ModelError("away"), [TextDelta("O se")], [ValueError("a bug")]])
async def test_model_that_fails_is_an_error_of_the_tool_alone(tmp_path: Path, turn: Any) -> None:
    script = [LOOK, turn, says("done")]
    async with talking(tmp_path, script=script, tools=pondering()) as talk:
        await talk.decide((await asked(talk)).approval_id, answer=SEND)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert await talk.results("r1") == ["The model could not be asked."]


async def test_secrets_are_neither_shown_nor_sent(tmp_path: Path) -> None:
    script = [LOOK, says("O sea!"), says("done")]
    secret = "sk-ant-api03-" + "A1b2C3d4" * 6
    box = pondering(Message(role="user", content=f"use {secret} for it"))
    async with talking(tmp_path, script=script, tools=box, redaction=Redactor()) as talk:
        question = await asked(talk)
        assert secret not in str(question.shown)
        await talk.decide(question.approval_id, answer=SEND)
        await talk.ended("r1")
        (sent,) = prompts(talk)[1].messages
        assert secret not in sent.content and sent.content.endswith(" for it")
        assert question.shown["arguments"]["question"].endswith(sent.content)


async def test_run_that_is_cancelled_stops_the_model_and_pays_for_what_came(
    tmp_path: Path,
) -> None:
    gate = asyncio.Event()
    script = [LOOK, [TextDelta("x" * 400), gate, *says("never")]]
    given = options(budget=budget(day="1000 tokens"))
    async with talking(tmp_path, script=script, tools=pondering(), **given) as talk:
        await talk.decide((await asked(talk)).approval_id, answer=SEND)
        async with asyncio.timeout(BOUND):
            while len(prompts(talk)) < 2:  # noqa: ASYNC110  # a script sets no event
                await asyncio.sleep(0)
        await talk.cancel("r1")
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        assert 100 < (await spent(talk))["day"] < 200


async def test_yes_after_the_owner_was_lost_asks_what_became_of_the_call_not_the_model(
    tmp_path: Path,
) -> None:
    clock, ttl = SettableClock(), 100.0
    box = pondering(effect=Effect.AT_MOST_ONCE)
    setup = Setup([LOOK], tools=box, policy=FakePolicy(lambda call: "allow"), clock=clock)
    setup.lease_ttl = ttl
    async with talking(tmp_path, setup) as lost, talking(tmp_path, setup, owner="b") as later:
        for talk in (lost, later):
            await talk.engine.parts.sweeper.__aexit__()
        question = await asked(lost)
        clock.advance(2 * ttl)
        await later.sweep()
        await later.decide(question.approval_id, answer=SEND)
        state = await later.until(is_asked_anew(question.approval_id))
        (approval,) = state.run("r1").pending_approvals
        assert approval.request.kind == "outcome_unknown"
        assert len(prompts(later)) == 1
