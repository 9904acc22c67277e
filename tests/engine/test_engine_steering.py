"""Saying something while a run works, and stopping it after its step."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.commands import CancelRun, SteerRun
from sk_agents.engine.events import Event, Steered, SteeringDelivered, ToolStarted
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import Effect, RunStatus, Usage
from sk_agents.engine.run.context_window import summary
from sk_agents.engine.run.lifecycle import MAX_STEERING
from sk_agents.engine.turns import ReasoningState, TextDelta
from sk_agents.exceptions import (
    AlreadyTerminal,
    InvalidInput,
    LimitExceeded,
    NotSteerable,
    RunNotFound,
    StateCorrupt,
    ThreadNotFound,
)
from sk_agents.persistence.tasks.view import items_of
from sk_agents.redaction import HIDDEN, Redactor
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.builders import answered, ended, log, proposed, started
from tests.engine.fake_tools import FakePolicy, FakeTools, tool
from tests.engine.kit import (
    SEND_X,
    THREAD,
    USER,
    Setup,
    Talk,
    endings,
    kinds,
    still_clock,
    talking,
    waiting,
)
from tests.engine.openai_rules import problems
from tests.engine.test_engine_cancel import Gate, streaming
from tests.patience import seconds


async def steer(talk: Talk, text: str = "in Spain", run_id: str = "r1", **fields: Any) -> str:
    async with asyncio.timeout(seconds(10)):
        return await talk.engine.steer(SteerRun(THREAD, USER, run_id, text, **fields))


async def stop_after_step(talk: Talk, run_id: str = "r1") -> RunStatus:
    async with asyncio.timeout(seconds(10)):
        return await talk.engine.cancel(CancelRun(THREAD, USER, run_id, after="step"))


def texts(prompt: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(message["role"], message.get("content")) for message in prompt]


@asynccontextmanager
async def at_a_tool(
    at: Path, *more: Turn, **fields: Any
) -> AsyncIterator[tuple[Talk, Gate, FakeTools]]:
    """A run whose first tool is at work until the gate opens."""
    gate = Gate()
    tools = FakeTools(tool("Files-look", gate), tool("Files-more"))
    script = [calls(("Files-look", {})), *more]
    async with talking(at, script=script, tools=tools, **fields) as talk:
        await talk.say()
        await gate.wait()
        yield talk, gate, tools


@pytest.mark.parametrize("http", [False, True])
async def test_message_reaches_the_next_call_of_the_model_after_the_tool_results(
    tmp_path: Path, http: bool
) -> None:
    async with at_a_tool(tmp_path, says("ok"), says("again"), http=http) as (talk, gate, _):
        message_id = await steer(talk)
        gate.open.set()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert texts(talk.prompts[1])[-2:] == [("tool", "through"), ("user", "in Spain")]
        assert problems(talk.prompts[1]) == []
        (delivered,) = [e for e in await talk.log() if isinstance(e, SteeringDelivered)]
        assert (delivered.round, delivered.message_ids) == (2, (message_id,))
        await talk.ask("thanks")
        assert texts(talk.prompts[2])[:-1] == [*texts(talk.prompts[1]), ("assistant", "ok")]
        assert problems(talk.prompts[2]) == []


async def test_message_said_while_the_model_answers_gets_another_answer(tmp_path: Path) -> None:
    half: Turn = [TextDelta("It is sunny"), asyncio.Event(), *says(".")]
    (hold,) = [piece for piece in half if isinstance(piece, asyncio.Event)]
    async with talking(tmp_path, script=[half, says("In Spain too."), says("so")]) as talk:
        accepted = await talk.say()
        await streaming(talk, "It is sunny")
        await steer(talk)
        hold.set()
        run = await talk.ended("r1")
        assert run.answer is not None and run.answer.content == "In Spain too."
        assert [thought.content for thought in run.thoughts] == ["It is sunny."]
        assert run.thoughts[0].spoken
        assert texts(talk.prompts[1])[-3:] == [
            ("user", "hello"),
            ("assistant", "It is sunny."),
            ("user", "in Spain"),
        ]
        assert endings(await talk.log()) == [RunStatus.COMPLETED]
        shown = [i for i in kinds(await talk.items(accepted)) if i != "LiveDelta"]
        assert shown == kinds(await talk.log())
        await talk.ask("thanks")
        assert texts(talk.prompts[2])[-2:] == [("assistant", "In Spain too."), ("user", "thanks")]


async def test_rounds_are_paid_for_and_counted_when_the_model_is_asked_again(
    tmp_path: Path,
) -> None:
    hold, ten = asyncio.Event(), Usage(prompt_tokens=6, completion_tokens=4)
    half: Turn = [TextDelta("One"), hold, *says(".", usage=ten)]
    script = [half, calls(("Files-look", {}), usage=ten), says("Two.", usage=ten)]
    tools = FakeTools(tool("Files-look"))
    async with talking(tmp_path, script=script, tools=tools) as talk:
        await talk.say()
        await streaming(talk, "One")
        await steer(talk)
        hold.set()
        run = await talk.ended("r1")
        (call,) = run.calls.values()
        assert run.answer is not None
        assert (call.proposal.round, run.answer.round) == (2, 3)
        assert (run.answer.usage, run.usage) == (ten, ten + ten + ten)
        assert problems(talk.prompts[2]) == []


async def test_answer_stands_when_no_round_is_left_and_the_message_is_not_delivered(
    tmp_path: Path,
) -> None:
    half: Turn = [TextDelta("It is"), asyncio.Event(), *says(" sunny.")]
    (hold,) = [piece for piece in half if isinstance(piece, asyncio.Event)]
    limits = RunLimits(model_rounds=1)
    async with talking(tmp_path, script=[half, says("ok")], limits=limits) as talk:
        await talk.say()
        await streaming(talk, "It is")
        await steer(talk)
        hold.set()
        run = await talk.ended("r1")
        assert run.answer is not None and run.answer.content == "It is sunny."
        assert len(run.undelivered) == 1
        await talk.ask("thanks")
        assert "in Spain" not in str(talk.prompts[-1])


async def test_message_to_a_run_that_waits_is_delivered_after_the_decision(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        await talk.parked()
        await steer(talk, "and be brief")
        assert (await talk.engine.thread(THREAD, USER)).state.run("r1").status is RunStatus.WAITING
        await talk.decide(approval_id)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert texts(talk.prompts[1])[-1] == ("user", "and be brief")
        assert problems(talk.prompts[1]) == []


async def test_several_messages_keep_their_order_and_their_places(tmp_path: Path) -> None:
    more = (calls(("Files-more", {})), says("ok"))
    async with at_a_tool(tmp_path, *more) as (talk, gate, _):
        for text in ("one", "two"):
            await steer(talk, text)
        gate.open.set()
        await talk.ended("r1")
        assert texts(talk.prompts[1])[-2:] == [("user", "one"), ("user", "two")]
        assert texts(talk.prompts[2])[: len(talk.prompts[1])] == texts(talk.prompts[1])
        assert texts(talk.prompts[2])[-1][0] == "tool"


async def test_messages_to_a_run_whose_model_thought_are_all_in_later_prompts(
    tmp_path: Path,
) -> None:
    """Its rounds are told again without the thoughts, and with all that was said."""
    gate = Gate()
    tools = FakeTools(tool("Files-look", gate))
    *asked, end = calls(("Files-look", {}))
    thinking: Turn = [*asked, ReasoningState({"thought": "hm"}), end]
    script = [thinking, says("ok"), says("again")]
    async with talking(tmp_path, script=script, tools=tools) as talk:
        await talk.say()
        await gate.wait()
        for text in ("one", "two"):
            await steer(talk, text)
        gate.open.set()
        await talk.ended("r1")
        await talk.ask("thanks")
        said_by_user = [text for role, text in texts(talk.prompts[2]) if role == "user"]
        assert said_by_user == ["hello", "one", "two", "thanks"]


async def test_same_request_again_leaves_one_message(tmp_path: Path) -> None:
    async with at_a_tool(tmp_path, says("ok")) as (talk, gate, _):
        first = await steer(talk, idempotency_key="k", request_digest="d")
        assert await steer(talk, idempotency_key="k", request_digest="d") == first
        with pytest.raises(InvalidInput):
            await steer(talk, idempotency_key="k", request_digest="other")
        with pytest.raises(InvalidInput):
            await talk.say(idempotency_key="k", request_digest="d")
        gate.open.set()
        await talk.ended("r1")
        assert await steer(talk, idempotency_key="k", request_digest="d") == first
        assert kinds(await talk.log()).count("Steered") == 1


async def test_key_of_another_request_is_refused(tmp_path: Path) -> None:
    async with at_a_tool(tmp_path, says("ok")) as (talk, gate, _):
        await talk.say("next", on_busy="enqueue", idempotency_key="run", request_digest="d")
        await steer(talk, idempotency_key="said", request_digest="d")
        for text, key, digest in (("x", "run", "d"), ("x", "said", "e")):
            with pytest.raises(InvalidInput, match="another request"):
                await steer(talk, text, idempotency_key=key, request_digest=digest)
        with pytest.raises(InvalidInput, match="another request"):
            await talk.say("more", on_busy="enqueue", idempotency_key="said", request_digest="d")
        gate.open.set()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


async def test_prompt_of_another_instance_has_what_was_said_in_the_same_places(
    tmp_path: Path,
) -> None:
    """Before the calls of its round, also where the run is folded from its log anew."""
    look = calls(("Files-more", {}))
    async with at_a_tool(tmp_path, look, look, says("ok")) as (talk, gate, _):
        await steer(talk, "in Spain")
        gate.open.set()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        before = texts(talk.prompts[-1])
        assert [text for role, text in before if role == "user"] == ["hello", "in Spain"]
        assert before[-1][0] == "tool"
    async with talking(tmp_path, script=[says("again")], owner="b") as there:
        await there.ask("thanks", run_id="r2")
        assert texts(there.prompts[0])[:-2] == before
        assert texts(there.prompts[0])[-2:] == [("assistant", "ok"), ("user", "thanks")]


async def test_run_that_ended_queued_or_stops_takes_no_message(tmp_path: Path) -> None:
    async with at_a_tool(tmp_path, says("ok")) as (talk, gate, _):
        await talk.say("next", on_busy="enqueue")
        with pytest.raises(NotSteerable):
            await steer(talk, run_id="r2")
        with pytest.raises(RunNotFound):
            await steer(talk, run_id="r9")
        with pytest.raises(ThreadNotFound):
            await talk.engine.steer(SteerRun(THREAD, "eve", "r1", "mine"))
        await stop_after_step(talk)
        with pytest.raises(NotSteerable):
            await steer(talk)
        gate.open.set()
        await talk.ended("r1")
        with pytest.raises(AlreadyTerminal):
            await steer(talk)


async def test_one_run_takes_so_many_messages_and_no_more(tmp_path: Path) -> None:
    async with at_a_tool(tmp_path, says("ok")) as (talk, gate, _):
        for number in range(MAX_STEERING):
            await steer(talk, str(number))
        with pytest.raises(LimitExceeded):
            await steer(talk, "one more")
        gate.open.set()
        await talk.ended("r1")


@pytest.mark.usefixtures("readers_look")
async def test_message_to_another_instance_reaches_the_one_that_drives(tmp_path: Path) -> None:
    gate = Gate()
    setup = Setup(
        lease_ttl=1.0,
        clock=still_clock(),
        tools=FakeTools(tool("Files-look", gate)),
        script=[calls(("Files-look", {})), says("ok")],
    )
    async with talking(tmp_path, setup) as a, talking(tmp_path, setup, owner="b") as b:
        await a.say()
        await gate.wait()
        await steer(b)
        gate.open.set()
        assert (await b.ended("r1")).status is RunStatus.COMPLETED
        assert texts(a.prompts[1])[-1] == ("user", "in Spain")


@pytest.mark.usefixtures("readers_look")
async def test_message_that_another_instance_took_during_the_answer_is_not_lost(
    tmp_path: Path,
) -> None:
    half: Turn = [TextDelta("It is"), asyncio.Event(), *says(" sunny.")]
    (hold,) = [piece for piece in half if isinstance(piece, asyncio.Event)]
    setup = Setup(lease_ttl=60.0, script=[half, says("In Spain.")])
    async with talking(tmp_path, setup) as a, talking(tmp_path, setup, owner="b") as b:
        await a.say()
        await streaming(a, "It is")
        await steer(b)
        hold.set()
        run = await b.ended("r1")
        assert run.answer is not None and run.answer.content == "In Spain."
        assert endings(await a.log()) == [RunStatus.COMPLETED]


async def test_cancelled_run_keeps_its_message_as_not_delivered(tmp_path: Path) -> None:
    async with at_a_tool(tmp_path, says("next")) as (talk, _, _tools):
        await steer(talk)
        await talk.cancel("r1")
        run = await talk.ended("r1")
        assert run.status is RunStatus.CANCELLED
        assert [one.said.content for one in run.undelivered] == ["in Spain"]
        await talk.ask("next")
        assert "in Spain" not in str(talk.prompts[-1])


async def test_running_tool_finishes_and_nothing_new_begins_after_a_step_stop(
    tmp_path: Path,
) -> None:
    gate = Gate()
    tools = FakeTools(tool("Files-look", gate), tool("Mail-send", effect=Effect.AT_MOST_ONCE))
    policy = FakePolicy(lambda call: "allow" if call.name == "Files-look" else "ask")
    script = [calls(("Files-look", {}), ("Mail-send", {})), says("never")]
    async with talking(tmp_path, script=script, tools=tools, policy=policy) as talk:
        await talk.say()
        await gate.wait()
        await talk.approvals("r1")
        assert await stop_after_step(talk) is RunStatus.RUNNING
        assert await stop_after_step(talk) is RunStatus.RUNNING
        gate.open.set()
        run = await talk.ended("r1")
        assert run.status is RunStatus.CANCELLED
        first, second = await talk.results("r1")
        assert first == "through"
        assert second is not None and second.startswith("Not run")
        assert [name for name, _ in tools.started] == ["Files-look"]
        assert len(talk.prompts) == 1
        assert kinds(await talk.log()).count("CancelRequested") == 1
        assert await stop_after_step(talk) is RunStatus.CANCELLED


async def test_reply_that_is_being_given_is_kept_and_its_tools_do_not_start(tmp_path: Path) -> None:
    asking: Turn = [TextDelta("I look"), asyncio.Event(), *calls(("Files-look", {}))]
    (hold,) = [piece for piece in asking if isinstance(piece, asyncio.Event)]
    tools = FakeTools(tool("Files-look"))
    script = [asking, says("next")]
    async with talking(tmp_path, script=script, tools=tools) as talk:
        await talk.say()
        await streaming(talk, "I look")
        await stop_after_step(talk)
        hold.set()
        run = await talk.ended("r1")
        assert run.status is RunStatus.CANCELLED
        assert [(t.content, t.spoken) for t in run.thoughts] == [("I look", True)]
        assert tools.started == []
        assert not any(isinstance(event, ToolStarted) for event in await talk.log())
        await talk.ask("next")
        assert problems(talk.prompts[-1]) == []


async def test_answer_that_is_the_last_step_completes_the_run(tmp_path: Path) -> None:
    half: Turn = [TextDelta("It is"), asyncio.Event(), *says(" sunny.")]
    (hold,) = [piece for piece in half if isinstance(piece, asyncio.Event)]
    async with talking(tmp_path, script=[half]) as talk:
        await talk.say()
        await streaming(talk, "It is")
        await steer(talk)
        await stop_after_step(talk)
        hold.set()
        run = await talk.ended("r1")
        assert run.status is RunStatus.COMPLETED
        assert run.answer is not None and run.answer.content == "It is sunny."
        assert len(run.undelivered) == 1
        with pytest.raises(AlreadyTerminal):
            await stop_after_step(talk)


async def test_hard_stop_after_a_step_stop_works_at_once(tmp_path: Path) -> None:
    async with at_a_tool(tmp_path) as (talk, _, _tools):
        await stop_after_step(talk)
        await talk.cancel("r1")
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        assert endings(await talk.log()) == [RunStatus.CANCELLED]


@pytest.mark.parametrize("with_queue", [False, True])
async def test_run_that_waits_for_a_person_ends_at_once(tmp_path: Path, with_queue: bool) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        await waiting(talk)
        await talk.parked()
        if with_queue:
            await talk.say("next", on_busy="enqueue")
        await stop_after_step(talk)
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        if with_queue:
            assert (await talk.ended("r2")).status is RunStatus.COMPLETED


@pytest.mark.usefixtures("readers_look")
async def test_step_stop_at_another_instance_ends_the_run_here(tmp_path: Path) -> None:
    gate = Gate()
    setup = Setup(
        lease_ttl=1.0,
        clock=still_clock(),
        tools=FakeTools(tool("Files-look", gate)),
        script=[calls(("Files-look", {})), says("never")],
    )
    async with talking(tmp_path, setup) as a, talking(tmp_path, setup, owner="b") as b:
        await a.say()
        await gate.wait()
        await stop_after_step(b)
        gate.open.set()
        assert (await b.ended("r1")).status is RunStatus.CANCELLED
        assert await a.results("r1") == ["through"]
        assert len(a.prompts) == 1


async def test_plain_turn_is_two_commits_and_a_steered_one_says_what_it_delivered(
    tmp_path: Path,
) -> None:
    async with at_a_tool(tmp_path, says("ok")) as (talk, gate, _):
        await steer(talk)
        gate.open.set()
        await talk.ended("r1")
        assert kinds(await talk.log()) == [
            "RunStarted",
            "ToolProposed",
            "ToolStarted",
            "Steered",
            "ToolFinished",
            "SteeringDelivered",
            "Answered",
            "RunEnded",
        ]
        (said,) = [event for event in await talk.log() if isinstance(event, Steered)]
        assert (said.content, said.said_by) == ("in Spain", USER)


async def test_secret_in_a_message_reaches_neither_the_log_nor_the_model(tmp_path: Path) -> None:
    redaction = Redactor.of(["hunter2canary"])
    async with at_a_tool(tmp_path, says("ok"), redaction=redaction) as (talk, gate, _):
        await steer(talk, "it is hunter2canary")
        gate.open.set()
        run = await talk.ended("r1")
        assert [one.said.content for one in run.delivered] == [f"it is {HIDDEN}"]
        assert texts(talk.prompts[1])[-1] == ("user", f"it is {HIDDEN}")
        assert "hunter2canary" not in str(await talk.log())


def test_summary_of_old_turns_has_what_was_delivered_and_tasks_show_it() -> None:
    said = [
        Steered(run_id="r1", message_id=name, content=name, said_by="ada")
        for name in ("heard", "unheard")
    ]
    given = SteeringDelivered(run_id="r1", round=1, message_ids=("heard",))
    events = log(started(), *said, given, answered(), ended())
    state = fold(events)
    text = summary(None, state.branch())
    assert "heard" in text and "unheard" not in text
    assert [item.item.content for item in items_of("t", events)] == ["hello", "heard", "Done."]


@pytest.mark.parametrize(
    "events",
    [
        [SteeringDelivered(run_id="r1", round=1, message_ids=("m1",))],
        [SteeringDelivered(run_id="r1", round=1, message_ids=())],
        [Steered(run_id="r1", message_id="m1", content="x")] * 2,
        [
            Steered(run_id="r1", message_id="m1", content="x"),
            SteeringDelivered(run_id="r1", round=2, message_ids=("m1",)),
        ],
        [
            Steered(run_id="r1", message_id="m1", content="x"),
            proposed(),
            SteeringDelivered(run_id="r1", round=2, message_ids=("m1",)),
        ],
        [answered(), ended(), Steered(run_id="r1", message_id="m1", content="x")],
    ],
)
def test_log_that_delivers_what_cannot_have_been_is_damaged(events: list[Event]) -> None:
    with pytest.raises(StateCorrupt):
        fold(log(started(), *events))
