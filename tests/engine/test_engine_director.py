"""Rounds that a director plans: what the model is told and offered, and what may be its answer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from sk_agents.engine.models import Message, RunStatus, Usage
from sk_agents.engine.ports import RoundPlan, Scene
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.run.context_window import ContextWindow
from sk_agents.engine.turns import TextDelta, TurnFinished
from sk_agents.exceptions import ModelError, OutputInvalid
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing import ScriptedModel
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.kit import Script, Talk, kinds, talking
from tests.engine.openai_rules import problems
from tests.engine.test_engine_troubles import idle

TEN = Usage(prompt_tokens=6, completion_tokens=4)
Check = Callable[[str], Awaitable[None]]


class Planning:
    """Plans each round alike; `scenes` are what it was shown."""

    def __init__(self, script: Script = (), **plan: Any) -> None:
        self.model = ScriptedModel(script)
        self.next = RoundPlan(self.model, **plan)
        self.scenes: list[Scene] = []

    async def plan(self, scene: Scene) -> RoundPlan:
        self.scenes.append(scene)
        return self.next


def refusing(*answers: str, error: type[ModelError] = OutputInvalid) -> Check:
    async def check(answer: str) -> None:
        if answer in answers:
            raise error

    return check


def directed(director: Planning) -> Any:
    return talking(MemoryStore(), director=director)


async def answered(talk: Talk) -> str:
    run = await talk.ask()
    assert run.status is RunStatus.COMPLETED
    assert run.answer is not None
    return run.answer.content


async def test_director_sees_who_speaks_and_what_was_said() -> None:
    director = Planning([says("one"), says("two")])
    async with directed(director) as talk:
        await talk.ask("first")
        await talk.ask("second")
    scene = director.scenes[1]
    assert (scene.thread_id, scene.user_id, scene.run.run_id) == ("t", "ada", "r2")
    assert [message.content for message in scene.messages] == ["first", "one", "second"]


async def test_planned_answer_ends_the_run_and_no_model_is_asked() -> None:
    director = Planning(answer="as the tool said", check=refusing("something else"))
    async with directed(director) as talk:
        assert await answered(talk) == "as the tool said"
    assert director.model.prompts == []


async def test_planned_answer_that_may_not_be_given_fails_the_run() -> None:
    director = Planning(answer="wrong", check=refusing("wrong"))
    async with directed(director) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert run.failure.code == "output_invalid"


async def test_answer_that_cannot_be_used_is_asked_for_once_more_and_both_are_paid_for() -> None:
    script = [says("wrong", usage=TEN), says("right", usage=TEN)]
    director = Planning(script, check=refusing("wrong"))
    async with directed(director) as talk:
        run = await talk.ask()
        assert run.answer is not None
        assert (run.answer.content, run.usage.total_tokens) == ("right", 20)


@pytest.mark.parametrize(
    ("error", "code", "asked"),
    [(OutputInvalid, "output_invalid", 2), (ModelError, "llm_unavailable", 1)],
    ids=["worth another try", "of no use"],
)
async def test_answer_that_is_never_usable_fails_the_run(
    error: type[ModelError], code: str, asked: int
) -> None:
    director = Planning([says("wrong")] * 3, check=refusing("wrong", error=error))
    async with directed(director) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert (run.failure.code, len(director.model.prompts)) == (code, asked)


async def test_words_beside_calls_are_no_answer_to_be_checked() -> None:
    beside: Turn = [TextDelta("wrong"), *calls(("Files-look", {}))]
    director = Planning([beside, says("right")], check=refusing("wrong"))
    async with directed(director) as talk:
        assert await answered(talk) == "right"
        assert talk.tools.started == [("Files-look", {})]


async def test_only_tools_that_are_offered_are_named_and_can_be_called() -> None:
    turns = [calls(("Mail-send", {})), calls(("Files-look", {})), says("done")]
    director = Planning(turns, offered={"Files-look"}, tool_choice="auto")
    async with directed(director) as talk:
        assert await answered(talk) == "done"
        assert talk.tools.started == [("Files-look", {})]
        (refused, _) = await talk.results("r1")
        assert refused is not None and "Mail-send" in refused
    for prompt in director.model.prompts:
        assert [spec.name for spec in prompt.tools] == ["Files-look"]
        assert prompt.tool_choice == "auto"


async def test_nothing_is_said_of_tools_where_none_is_offered() -> None:
    director = Planning([says("x")], offered=(), tool_choice="any", parallel_tool_calls=False)
    async with directed(director) as talk:
        await talk.ask()
    (prompt,) = director.model.prompts
    assert (prompt.tools, prompt.tool_choice, prompt.parallel_tool_calls) == ((), None, None)


async def test_second_call_at_once_is_refused_where_one_at_a_time_is_planned() -> None:
    turns = [calls(("Files-look", {"text": "1"}), ("Files-look", {"text": "2"})), says("done")]
    director = Planning(turns, parallel_tool_calls=False)
    async with directed(director) as talk:
        assert await answered(talk) == "done"
        assert talk.tools.started == [("Files-look", {"text": "1"})]


async def test_planned_history_stands_in_for_the_conversation() -> None:
    history = [Message(role="user", content="in short")]
    told = (Message(role="system", content="be brief"),)
    director = Planning([says("x")], history=history, instructions=told, response_schema={"a": 1})
    async with directed(director) as talk:
        await talk.ask("a long story")
    (prompt,) = director.model.prompts
    assert [message.content for message in prompt.messages] == ["be brief", "in short"]
    assert prompt.response_schema == {"a": 1}
    assert problems([{"role": m.role, "content": m.content} for m in prompt.messages]) == []


async def test_planned_history_is_sent_whole_however_long_it_is() -> None:
    """The director knows what the model takes."""
    output = Message(role="tool", content="x" * 20_000, tool_call_id="1")
    director = Planning([says("x")], history=[output])
    small = ContextWindow(window=4_000, reserve=400)
    async with talking(MemoryStore(), director=director, context=small) as talk:
        await talk.ask()
    (prompt,) = director.model.prompts
    assert prompt.messages[-1] == output


@pytest.mark.parametrize("is_held", [False, True])
async def test_held_answer_is_shown_once_it_was_checked(is_held: bool) -> None:
    gate = asyncio.Event()
    turn: Turn = [TextDelta("ha"), gate, TextDelta("lf"), TurnFinished("stop")]
    director = Planning([turn], is_held=is_held)
    async with directed(director) as talk:
        reader = asyncio.ensure_future(talk.items(await talk.say()))
        await idle()
        gate.set()
        items = await reader
        assert kinds(items)[-2:] == ["Answered", "RunEnded"]
        shown = "".join(item.content for item in items if isinstance(item, LiveDelta))
        assert shown == ("" if is_held else "ha")


async def test_plan_that_cannot_be_made_fails_the_run() -> None:
    class Lost(Planning):
        async def plan(self, scene: Scene) -> RoundPlan:
            raise ModelError("no plan")

    async with directed(Lost()) as talk:
        run = await talk.ask()
        assert run.failure is not None
        assert run.failure.message == "no plan"


async def test_round_after_the_first_may_be_planned_otherwise() -> None:
    director = Planning([calls(("Files-look", {})), says("never")])

    async def plan(scene: Scene) -> RoundPlan:
        return replace(director.next, answer="seen") if scene.run.calls else director.next

    director.plan = plan  # type: ignore[method-assign]  # another one for this test
    async with directed(director) as talk:
        assert await answered(talk) == "seen"
    assert len(director.model.prompts) == 1
