"""The tour's lessons, played by the real engine over a real database, wired as `teal serve` does.

Only the pauses of the script are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from sk_agents.config.default_agents import FOLDER, tour_alone
from sk_agents.config.settings import Settings
from sk_agents.engine.commands import Accepted, CancelRun, DecideApproval, StartRun
from sk_agents.engine.engine import Engine
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import Message, NewThread, Part, RunStatus, UserInput
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.turns import Prompt
from sk_agents.llm.scripted import ScriptPlayer, load_script
from sk_agents.wiring import build_parts, open_engines
from tests.llm.loopback import text_of
from tests.patience import seconds

TOUR = FOLDER / "tour"
UNKNOWN = "it has no line for that"


def examples() -> list[str]:
    document = yaml.safe_load((TOUR / "config.yaml").read_text())
    return [said for skill in document["metadata"]["skills"] for said in skill["examples"]]


class Visitor:
    """Somebody who takes the tour, in one conversation."""

    def __init__(self, engine: Engine, user_id: str) -> None:
        self.engine, self.user_id = engine, user_id
        self.thread_id = f"{user_id}-thread"

    async def say(self, text: str) -> Accepted:
        new = NewThread(self.user_id, agent="tour")
        message = UserInput(parts=(Part(content=text),))
        command = StartRun(self.thread_id, self.user_id, uuid4().hex, message, new=new)
        async with asyncio.timeout(seconds(5)):
            return await self.engine.start(command)

    async def ask(self, text: str) -> Run:
        """Say it, and see what has become of it when it has ended or waits."""
        accepted = await self.say(text)
        async with asyncio.timeout(seconds(10)):
            return await self.engine.result(accepted.thread_id, accepted.run_id)

    async def decide(self, approval_id: str, **fields: Any) -> None:
        fields.setdefault("approved", True)
        async with asyncio.timeout(seconds(5)):
            await self.engine.decide(DecideApproval(approval_id, self.user_id, **fields))

    async def ended(self, run: Run) -> Run:
        async with asyncio.timeout(seconds(10)):
            async for _ in self.engine.watch(self.thread_id, run_id=run.run_id):
                pass
            return (await self.engine.thread(self.thread_id, self.user_id)).state.run(run.run_id)

    async def decided(self, run: Run, **fields: Any) -> Run:
        """Everything that waits, decided in the same way, and the run to its end."""
        for approval in run.pending_approvals:
            await self.decide(approval.request.approval_id, **fields)
        return await self.ended(run)

    async def outbox(self) -> str:
        return answer_of(await self.ask("What have I sent?"))


@asynccontextmanager
async def touring(folder: Path, user_id: str = "", pace: float = 0) -> AsyncIterator[Visitor]:
    """A visitor to the packaged tour, with a database in this folder."""
    settings = Settings(store=f"sqlite://{folder}/teal.sqlite", script_pace=pace)
    async with AsyncExitStack() as stack:
        engines = await open_engines(stack, build_parts(settings, tour_alone().files))
        yield Visitor(engines.main, user_id or uuid4().hex)


def answer_of(run: Run) -> str:
    assert run.status is RunStatus.COMPLETED
    assert run.answer is not None
    return run.answer.content


def results_of(run: Run) -> list[str | None]:
    return [call.finished.result if call.finished else None for call in run.calls.values()]


def tools_of(run: Run) -> list[str]:
    return [
        f"{c.proposal.plugin_name}-{c.proposal.function_name}".removeprefix("Desk-")
        for c in run.calls.values()
    ]


def after_results(said: str, *results: str) -> Prompt:
    told = [
        Message(role="tool", content=text, tool_call_id=str(n)) for n, text in enumerate(results)
    ]
    return Prompt([Message(role="user", content=said), Message(role="assistant"), *told])


@pytest.mark.parametrize("said", examples())
async def test_every_suggested_prompt_has_its_lesson(tmp_path: Path, said: str) -> None:
    async with touring(tmp_path) as visitor:
        run = await visitor.ask(said)
        if run.status is RunStatus.WAITING:
            run = await visitor.decided(run)
        assert UNKNOWN not in answer_of(run)


@pytest.mark.parametrize("said", ["hello", "Help!", "What can you show me?", ""])
async def test_a_greeting_is_answered_with_what_there_is_to_see(tmp_path: Path, said: str) -> None:
    async with touring(tmp_path) as visitor:
        text = answer_of(await visitor.ask(said))
    assert "Send a postcard to Ada" in text


async def test_what_the_script_does_not_know_is_said_and_the_next_message_is_heard(
    tmp_path: Path,
) -> None:
    async with touring(tmp_path) as visitor:
        assert UNKNOWN in answer_of(await visitor.ask("Quantum chromodynamics?"))
        assert UNKNOWN in answer_of(await visitor.ask("And gluons?"))
        assert "Hello!" in answer_of(await visitor.ask("hi"))


async def test_tools_that_only_look_run_unasked_and_thinking_is_shown(tmp_path: Path) -> None:
    async with touring(tmp_path) as visitor:
        run = await visitor.ask("What time is it?")
    assert tools_of(run) == ["now", "convert"]
    assert [call.approval for call in run.calls.values()] == [None, None]
    assert "42.195 km = 26.22 mi" in answer_of(run) and "UTC" in answer_of(run)
    assert [thought.round for thought in run.thoughts] == [1]
    assert not any(thought.spoken for thought in run.thoughts)


async def test_approved_postcard_is_sent_and_said_to_be(tmp_path: Path) -> None:
    async with touring(tmp_path) as visitor:
        run = await visitor.ask("Send a postcard to my sister, please")
        assert run.status is RunStatus.WAITING
        (approval,) = run.pending_approvals
        assert approval.request.shown["arguments"]["to"] == "my sister"
        text = answer_of(await visitor.decided(run))
        assert "because it was approved" in text
        assert "The postcard to my sister is on its way" in text
        assert "1. to my sister: “Greetings from the tour!”" in await visitor.outbox()


async def test_rejection_is_answered_with_the_persons_own_words(tmp_path: Path) -> None:
    async with touring(tmp_path, "eve@example.org") as visitor:
        run = await visitor.ask("Send a postcard to Ada")
        text = answer_of(await visitor.decided(run, approved=False, message="too early: wait"))
        assert "eve@example.org rejected it" in text
        assert "> too early: wait\n" in text
        assert "No postcard was sent" in await visitor.outbox()


async def test_rejection_without_a_reason_is_understood_too(tmp_path: Path) -> None:
    async with touring(tmp_path, "eve@example.org") as visitor:
        run = await visitor.decided(await visitor.ask("Send a postcard"), approved=False)
    assert "eve@example.org rejected it" in answer_of(run)
    assert "> none\n" in answer_of(run)


async def test_edited_arguments_are_what_is_sent_and_what_is_said(tmp_path: Path) -> None:
    async with touring(tmp_path) as visitor:
        run = await visitor.ask("Send a postcard to Ada")
        edited = {"to": "Grace", "text": "Hello [you]"}
        text = answer_of(await visitor.decided(run, edited_arguments=edited))
        assert "changed the arguments" in text
        assert "> The postcard to Grace is on its way: “Hello [you]”" in text
        assert "1. to Grace: “Hello [you]”" in await visitor.outbox()


async def test_rule_lets_a_postcard_to_oneself_go_unasked(tmp_path: Path) -> None:
    async with touring(tmp_path) as visitor:
        run = await visitor.ask("Send a postcard to me")
    assert "Nobody was asked" in answer_of(run)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("Nobody approved this call in time. It did not run.", "Nobody decided in time"),
        ("This call is not allowed by policy. It did not run.", "A rule forbids it"),
    ],
)
async def test_other_ways_of_not_running_are_told_apart(result: str, said: str) -> None:
    player = ScriptPlayer(load_script("tour.yaml", TOUR), slowness=0)
    assert said in await text_of(player, after_results("Send a postcard", result))


async def test_one_visitors_outbox_is_not_anothers(tmp_path: Path) -> None:
    async with touring(tmp_path) as visitor:
        await visitor.ask("Send a postcard to me")
        other = Visitor(visitor.engine, uuid4().hex)
        assert "to me" in await visitor.outbox()
        assert "No postcard was sent" in await other.outbox()


async def test_free_calls_of_a_round_run_while_the_others_wait(tmp_path: Path) -> None:
    async with touring(tmp_path) as visitor:
        run = await visitor.ask("Do several things at once")
        assert tools_of(run) == ["now", "convert", "send_postcard", "send_postcard"]
        first, second, *rest = results_of(run)
        assert first and second == "26.2 mi = 42.16 km"
        assert rest == [None, None]
        one, other = run.pending_approvals
        await visitor.decide(one.request.approval_id)
        await visitor.decide(other.request.approval_id, approved=False, message="not her")
        text = answer_of(await visitor.ended(run))
    assert "not all of them were allowed" in text
    assert "- `Desk-send_postcard`: The postcard to Ada is on its way" in text
    assert f"- `Desk-send_postcard`: Rejected by {visitor.user_id}: not her" in text


async def test_run_survives_tools_that_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with touring(tmp_path) as visitor:
        run = await visitor.ask("What happens when a tool fails?")
    explained, crashed, found = results_of(run)
    assert explained == "The top drawer is locked. The key is in the bottom drawer."
    assert crashed == "The tool failed (code tool_failed)."
    assert f"In the bottom drawer there is {found}." in answer_of(run)
    assert "the handle came off" not in str(run)


async def test_forbidden_call_is_refused_by_policy_and_nobody_is_asked(tmp_path: Path) -> None:
    async with touring(tmp_path) as visitor:
        run = await visitor.ask("Try something forbidden")
    (call,) = run.calls.values()
    assert call.finished is not None
    assert (call.finished.outcome, call.finished.by, call.approval) == ("refused", "policy", None)
    assert "not allowed by policy" in answer_of(run)


async def test_output_of_a_tool_is_seen_while_it_runs(tmp_path: Path) -> None:
    async with touring(tmp_path) as visitor:
        accepted = await visitor.say("Stream the output of a tool")
        async with asyncio.timeout(seconds(10)):
            watched = visitor.engine.watch(visitor.thread_id, run_id=accepted.run_id)
            seen = [item async for items in watched for item in items]
    output = [i.content for i in seen if isinstance(i, LiveDelta) and i.kind == "tool_output"]
    assert "".join(output).startswith("line 1 of 8\n")


async def test_long_story_can_be_stopped_and_what_was_said_is_kept(tmp_path: Path) -> None:
    async with touring(tmp_path, pace=1) as visitor:
        accepted = await visitor.say("Tell me a long story")
        kinds = set()
        async with asyncio.timeout(seconds(10)):
            async for items in visitor.engine.watch(visitor.thread_id, run_id=accepted.run_id):
                for item in items:
                    if isinstance(item, LiveDelta) and item.kind not in kinds:
                        kinds.add(item.kind)
                if "answer" in kinds:
                    break
        await visitor.engine.cancel(CancelRun(visitor.thread_id, visitor.user_id, accepted.run_id))
        known = await visitor.engine.thread(visitor.thread_id, visitor.user_id)
        run = await visitor.ended(known.state.run(accepted.run_id))
    assert run.status is RunStatus.CANCELLED
    assert run.cancelled is not None and run.cancelled.partial
    assert kinds == {"thinking", "answer"}
    assert "nobody pressed Stop" not in run.cancelled.partial


async def test_story_that_nobody_stops_comes_to_its_end(tmp_path: Path) -> None:
    async with touring(tmp_path) as visitor:
        text = answer_of(await visitor.ask("Tell me a long story"))
    assert len(text.split()) > 500
    assert text.rstrip().endswith("nobody pressed Stop.*")


async def test_answers_come_word_by_word_at_the_pace_of_a_reader() -> None:
    script = load_script("tour.yaml", TOUR)
    assert script.pieces == "words"
    assert 1 <= script.delay_ms <= 50
    prompt = Prompt([Message(role="user", content="Show me a table and some code")])
    pieces = [p async for batch in ScriptPlayer(script, slowness=0).stream(prompt) for p in batch]
    assert len(pieces) > 100
    text = await text_of(ScriptPlayer(script, slowness=0), prompt)
    assert "|:--|:-:|--:|" in text
    assert "```python\n" in text


async def test_waiting_postcard_survives_a_restart(tmp_path: Path) -> None:
    async with touring(tmp_path, "ada") as visitor:
        run = await visitor.ask("Send a postcard to Ada")
        assert run.status is RunStatus.WAITING
    async with touring(tmp_path, "ada") as visitor:
        assert "because it was approved" in answer_of(await visitor.decided(run))
