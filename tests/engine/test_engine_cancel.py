"""Cancel: at any moment, final, and never more than one end."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.calls import runner
from sk_agents.engine.events import (
    Answered,
    Cancelled,
    CancelRequested,
    Event,
    ToolStarted,
)
from sk_agents.engine.models import Effect, RunStatus, ToolCall
from sk_agents.engine.turns import TextDelta, ToolContext
from sk_agents.exceptions import (
    AlreadyTerminal,
    ApprovalAlreadyDecided,
    ApprovalWithdrawn,
    RunNotFound,
)
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.fake_tools import SEND, FakePolicy, FakeTool, FakeTools, tool
from tests.engine.kit import SEND_X, UNSWEPT, Talk, endings, talking
from tests.engine.openai_rules import problems
from tests.engine.troubled_store import TroubledStore
from tests.patience import seconds
from tests.requirements import requirement


class Gate:
    """A tool or a model that says when it is reached and goes on when it may."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.reached.set()
        await self.open.wait()
        return "through"

    async def wait(self) -> None:
        async with asyncio.timeout(seconds(5)):
            await self.reached.wait()


async def streaming(talk: Talk, text: str) -> None:
    """Until a reader has seen this much of the answer."""
    seen = ""
    async with asyncio.timeout(seconds(5)):
        async for items in talk.engine.watch("t"):
            seen += "".join(getattr(item, "content", "") or "" for item in items)
            if text in seen:
                return


@requirement("S004-3.3-flag-checked", "S004-3.3-checkpoint")
@pytest.mark.parametrize("http", [False, True])
async def test_cancel_while_the_model_speaks_keeps_what_was_said(
    tmp_path: Path, http: bool
) -> None:
    half: Turn = [TextDelta("Once upon"), asyncio.Event(), *says(" a time")]
    async with talking(tmp_path, script=[half, says("ok")], http=http) as talk:
        await talk.say()
        await streaming(talk, "Once upon")
        assert await talk.cancel("r1") is RunStatus.RUNNING
        run = await talk.ended("r1")
        assert run.status is RunStatus.CANCELLED
        assert run.cancelled is not None and run.cancelled.partial == "Once upon"
        await talk.ask("go on")
        assert "Once upon" in talk.prompts[-1][-2]["content"]
        assert "cut short" in talk.prompts[-1][-2]["content"]
        assert problems(talk.prompts[-1]) == []


async def test_cancel_aborts_a_tool_that_can_be_repeated(tmp_path: Path) -> None:
    gate = Gate()
    tools = FakeTools(tool("Files-look", gate))
    script = [calls(("Files-look", {})), says("next")]
    async with talking(tmp_path, script=script, tools=tools) as talk:
        await talk.say()
        await gate.wait()
        await talk.cancel("r1")
        run = await talk.ended("r1")
        assert run.status is RunStatus.CANCELLED
        (call,) = run.calls.values()
        assert call.finished is not None
        assert (call.finished.outcome, call.finished.by) == ("sealed", "cancel")


@requirement("S004-4.3-checkpoint-always")
@pytest.mark.parametrize("finishes", [True, False])
async def test_cancel_waits_for_a_tool_that_must_not_be_cut_up_to_a_bound(
    tmp_path: Path, finishes: bool
) -> None:
    gate = Gate()
    tools = FakeTools(tool("Mail-send", gate, effect=Effect.AT_MOST_ONCE))
    limits = RunLimits(cancel_grace_seconds=5 if finishes else 0.05)
    policy = FakePolicy(lambda call: "allow")
    script = [calls(("Mail-send", {})), says("next")]
    async with talking(tmp_path, script=script, tools=tools, limits=limits, policy=policy) as talk:
        await talk.say()
        await gate.wait()
        await talk.cancel("r1")
        if finishes:
            gate.open.set()
        run = await talk.ended("r1")
        assert run.status is RunStatus.CANCELLED
        (result,) = await talk.results("r1")
        assert result is not None
        assert result == "through" if finishes else "may or may not have taken effect" in result
        assert (await talk.ask("next")).status is RunStatus.COMPLETED
        assert problems(talk.prompts[-1]) == []


@requirement("S004-4.3-before-each-step")
async def test_no_tool_and_no_model_call_starts_after_a_cancel(tmp_path: Path) -> None:
    gate = Gate()
    tools = FakeTools(
        tool("Mail-hold", gate, effect=Effect.AT_MOST_ONCE),
        tool("Mail-send", effect=Effect.AT_MOST_ONCE),
    )
    policy = FakePolicy(lambda call: "allow" if call.name == "Mail-hold" else "ask")
    script = [calls(("Mail-hold", {}), ("Mail-send", {})), says("never")]
    async with talking(tmp_path, script=script, tools=tools, policy=policy) as talk:
        await talk.say()
        await gate.wait()
        (approval_id,) = await talk.approvals("r1")
        await talk.cancel("r1")
        await asyncio.gather(talk.decide(approval_id), return_exceptions=True)
        gate.open.set()
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        assert [name for name, _ in tools.started] == ["Mail-hold"]
        assert len(talk.prompts) == 1
        assert_nothing_starts_after_the_flag(await talk.log())


async def test_cancel_of_a_waiting_run_ends_it_at_once_and_withdraws_its_approvals(
    tmp_path: Path,
) -> None:
    script = [calls(("Mail-send", {}), ("Files-look", {})), says("next")]
    async with talking(tmp_path, script=script) as talk:
        await talk.ask()
        (approval_id,) = await talk.approvals("r1")
        await talk.parked()
        assert await talk.cancel("r1") is RunStatus.CANCELLED
        with pytest.raises(ApprovalAlreadyDecided) as refused:
            await talk.decide(approval_id)
        assert refused.value.outcome == "withdrawn"
        assert [name for name, _ in talk.tools.started] == ["Files-look"]
        assert (await talk.ask("next")).status is RunStatus.COMPLETED
        assert problems(talk.prompts[-1]) == []


async def test_cancel_of_a_queued_run_removes_it(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, script=[[gate, *says("one")], says("three")]) as talk:
        await talk.say("1")
        await talk.say("2", on_busy="enqueue")
        await talk.say("3", on_busy="enqueue")
        assert await talk.cancel("r2") is RunStatus.CANCELLED
        assert await talk.cancel("r2") is RunStatus.CANCELLED
        gate.set()
        assert (await talk.ended("r3")).status is RunStatus.COMPLETED
        said = [m["content"] for m in talk.prompts[-1] if m["role"] == "user"]
        assert said == ["1", "3"]


@pytest.mark.parametrize("is_queued", [True, False])
async def test_cancel_of_a_run_that_is_not_at_work_is_one_commit(is_queued: bool) -> None:
    store = TroubledStore()
    async with talking(store, script=SEND_X, lease_ttl=1e5) as talk:
        await talk.ask()
        await talk.parked()
        if is_queued:
            await talk.say("2", on_busy="enqueue")
        before = len(store.commits)
        assert await talk.cancel("r2" if is_queued else "r1") is RunStatus.CANCELLED
        assert len(store.commits) == before + 1


async def test_cancel_of_an_ended_or_unknown_run_says_so(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[says("done")]) as talk:
        await talk.ask()
        before = await talk.log()
        with pytest.raises(AlreadyTerminal):
            await talk.cancel("r1")
        with pytest.raises(RunNotFound):
            await talk.cancel("r9")
        assert await talk.log() == before


async def test_run_that_is_cancelled_before_its_first_step_ends_at_once() -> None:
    # No sweep is to find it.
    async with talking(
        MemoryStore(), script=[says("one"), says("never")], lease_ttl=UNSWEPT
    ) as talk:
        await talk.ask()
        await talk.parked()
        await talk.edit("r1", "something else")
        await talk.cancel("r2")
        assert (await talk.ended("r2")).status is RunStatus.CANCELLED
        assert len(talk.prompts) == 1


async def test_repeated_cancel_is_answered_and_changes_nothing(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[[asyncio.Event()]]) as talk:
        await talk.say()
        answers = await asyncio.gather(*(talk.cancel("r1") for _ in range(8)))
        assert set(answers) <= {RunStatus.RUNNING, RunStatus.CANCELLED}
        await talk.ended("r1")
        assert await talk.cancel("r1") is RunStatus.CANCELLED
        log = await talk.log()
        assert len([e for e in log if isinstance(e, CancelRequested)]) == 1
        assert endings(log) == [RunStatus.CANCELLED]


def assert_nothing_starts_after_the_flag(log: list[Event]) -> None:
    flags = [event.seq for event in log if isinstance(event, CancelRequested)]
    starts = [event.seq for event in log if isinstance(event, ToolStarted)]
    assert all(start < min(flags) for start in starts if flags)


async def test_every_race_of_cancel_and_completion_has_one_end(tmp_path: Path) -> None:
    """A build whose answer is committed without looking for a cancel turns this red."""
    policy = FakePolicy(lambda call: "allow")
    asks = calls(("Files-look", {}), ("Mail-send", {}))
    # Every third run is held until it has been asked to cancel, every third has ended by then.
    gates = [asyncio.Event() for _ in range(100)]
    answers: list[Turn] = [
        [TextDelta("the"), gate, *says(" answer")]
        if seed % 3 == 0
        else says("the answer", pieces=3)
        for seed, gate in enumerate(gates)
    ]
    script = [turn for answer in answers for turn in (asks, answer)]
    ends = set()
    async with talking(tmp_path, script=script, policy=policy) as talk:
        for seed in range(100):
            thread = f"t{seed}"
            accepted = await talk.say(thread=thread)
            if seed % 3 == 1:
                await talk.ended(accepted.run_id, thread=thread)
            for _ in range(random.Random(seed).randrange(30)):
                await asyncio.sleep(0)
            try:
                cancelled: RunStatus | None = await talk.cancel(accepted.run_id, thread=thread)
            except AlreadyTerminal:
                cancelled = None
            gates[seed].set()
            run = await talk.ended(accepted.run_id, thread=thread)
            log = await talk.log(thread)
            assert len(endings(log)) == 1
            assert (cancelled is None) is (run.status is RunStatus.COMPLETED)
            assert len([e for e in log if isinstance(e, Answered | Cancelled)]) == 1
            assert_nothing_starts_after_the_flag(log)
            talk.model.script.played = 2 * (seed + 1)  # type: ignore[attr-defined]
            ends.add(run.status)
    assert ends == {RunStatus.COMPLETED, RunStatus.CANCELLED}


class SlowToShow(FakeTools):
    """Takes for ever to find out what a call would change."""

    def __init__(self, *tools: FakeTool) -> None:
        super().__init__(*tools)
        self.is_asked = asyncio.Event()

    async def preview(self, call: ToolCall, context: ToolContext) -> str | None:
        self.is_asked.set()
        await asyncio.Event().wait()
        return None


async def test_cancel_does_not_wait_for_a_preview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PREVIEW_SECONDS", 1000.0)
    tools = SlowToShow(SEND)
    async with talking(tmp_path, script=SEND_X, tools=tools) as talk:
        await talk.say()
        async with asyncio.timeout(seconds(5)):
            await tools.is_asked.wait()
        await talk.cancel("r1")
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        assert tools.started == []


async def test_yes_after_a_cancel_is_refused_while_the_run_still_ends(tmp_path: Path) -> None:
    gate = Gate()
    tools = FakeTools(tool("Bank-pay", gate, effect=Effect.AT_MOST_ONCE), SEND)
    script = [calls(("Bank-pay", {}), ("Mail-send", {"text": "x"}))]
    policy = FakePolicy(lambda call: "allow" if call.name == "Bank-pay" else None)
    async with talking(tmp_path, script=script, tools=tools, policy=policy) as talk:
        await talk.say()
        await gate.wait()
        (approval_id,) = await talk.approvals("r1")
        assert await talk.cancel("r1") is RunStatus.RUNNING
        with pytest.raises(ApprovalWithdrawn):
            await talk.decide(approval_id)
        gate.open.set()
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        assert [name for name, _ in tools.started] == ["Bank-pay"]
