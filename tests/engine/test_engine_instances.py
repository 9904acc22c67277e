"""Two engines on one store: any of them may be asked, one of them drives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.models import Effect, RunStatus
from sk_agents.engine.turns import TextDelta, ToolContext
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.fake_tools import LOOK, FakeTools, tool
from tests.engine.kit import (
    THREAD,
    UNSWEPT,
    Setup,
    Talk,
    endings,
    kinds,
    still_clock,
    talking,
    waiting,
)
from tests.patience import seconds
from tests.requirements import requirement

pytestmark = pytest.mark.usefixtures("readers_look")


@asynccontextmanager
async def two(at: Path, **fields: Any) -> AsyncIterator[tuple[Talk, Talk]]:
    """Two instances with short leases; the second has a model of its own that says nothing."""
    setup = Setup(lease_ttl=1.0, clock=still_clock(), **fields)
    async with talking(at, setup) as a, talking(at, setup, owner="b") as b:
        yield a, b


async def test_run_started_here_is_decided_watched_and_ended_there(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"text": "x"})), says("sent")]
    async with two(tmp_path, script=script) as (a, b):
        accepted = await a.say()
        watcher = asyncio.create_task(b.items(accepted))
        assert (await a.result(accepted)).status is RunStatus.WAITING
        await b.decide(*await b.approvals("r1"))
        assert (await b.ended("r1")).status is RunStatus.COMPLETED
        assert (await a.ended("r1")).status is RunStatus.COMPLETED
        seen = [item for item in await watcher if hasattr(item, "seq")]
        assert seen == await a.log()
        assert a.tools.started == [("Mail-send", {"text": "x"})]


async def test_decision_made_there_reaches_a_run_that_is_driven_here(tmp_path: Path) -> None:
    gate, reached = asyncio.Event(), asyncio.Event()

    async def hold(arguments: dict[str, Any], context: Any) -> str:
        reached.set()
        await gate.wait()
        return "held"

    tools = FakeTools(tool("Files-look", hold), tool("Mail-send", effect=Effect.AT_MOST_ONCE))
    script = [calls(("Files-look", {}), ("Mail-send", {})), says("ok")]
    async with two(tmp_path, script=script, tools=tools) as (a, b):
        await a.say()
        async with asyncio.timeout(seconds(5)):
            await reached.wait()
        await b.decide(*await b.approvals("r1"))
        await a.until(lambda state: len(state.run("r1").unresolved_calls) == 1)
        gate.set()
        assert (await b.ended("r1")).status is RunStatus.COMPLETED
        assert sorted(name for name, _ in tools.started) == ["Files-look", "Mail-send"]


async def test_cancel_there_stops_what_is_driven_here(tmp_path: Path) -> None:
    half: Turn = [TextDelta("Once"), asyncio.Event()]
    async with two(tmp_path, script=[half]) as (a, b):
        await a.say()
        assert await b.cancel("r1") is RunStatus.RUNNING
        assert (await b.ended("r1")).status is RunStatus.CANCELLED
        assert endings(await a.log()) == [RunStatus.CANCELLED]


async def test_messages_to_both_at_once_are_one_conversation(tmp_path: Path) -> None:
    script = [says(str(number)) for number in range(10)]
    async with two(tmp_path, script=script) as (a, b):
        accepted = await asyncio.gather(
            *(
                talk.say(f"{talk is a}{n}", run_id=f"{talk is a}{n}", on_busy="enqueue")
                for n in range(5)
                for talk in (a, b)
            )
        )
        assert len(accepted) == 10
        state = await b.until(
            lambda state: sum(r.status is RunStatus.COMPLETED for r in state.runs.values()) == 10
        )
        assert len(state.branch()) == 10
        assert [len(prompt) for prompt in a.prompts] == [2 * n for n in range(1, 11)]


@requirement("S003-3d-deployment")
@pytest.mark.parametrize("is_streaming", [True, False])
async def test_engine_that_closes_hands_its_run_over_without_losing_any_of_it(
    tmp_path: Path, is_streaming: bool
) -> None:
    reached = asyncio.Event()

    async def hang(arguments: dict[str, Any], context: Any) -> str:
        reached.set()
        if len(tools.started) == 1:
            await asyncio.Event().wait()
        return "looked"

    tools = FakeTools(tool("Files-look", hang), LOOK if is_streaming else tool("x"))
    script: list[Turn] = [[TextDelta("half"), asyncio.Event()]] if is_streaming else []
    script += [calls(("Files-look", {})), says("done")]
    setup = Setup(script, tools=tools, lease_ttl=1.0, clock=still_clock())
    async with talking(tmp_path, setup) as a:
        await a.say("hello")
        if is_streaming:
            async with asyncio.timeout(seconds(5)):
                async for items in a.engine.watch("t"):
                    if "LiveDelta" in kinds(items):
                        break
        else:
            async with asyncio.timeout(seconds(5)):
                await reached.wait()
        tools.started.extend([("", {})] * is_streaming)
    assert endings(await logged(tmp_path)) == []
    async with talking(tmp_path, setup, owner="b") as b:
        run = await b.ended("r1")
        assert run.status is RunStatus.COMPLETED
        assert run.message is not None and run.message.text == "hello"


async def logged(at: Path) -> list[Any]:
    async with talking(at) as talk:
        return await talk.log()


@asynccontextmanager
async def without_sweeps(at: Path, **fields: Any) -> AsyncIterator[tuple[Talk, Talk]]:
    """Two instances that sweep only when they are told to."""
    setup = Setup(lease_ttl=UNSWEPT, **fields)
    async with talking(at, setup) as a, talking(at, setup, owner="b") as b:
        yield a, b


async def looking(arguments: dict[str, Any], context: ToolContext) -> str:
    await asyncio.Event().wait()
    return "never"


def held(is_tool: bool) -> dict[str, Any]:
    """A run that hangs in its model call, or in a tool."""
    if not is_tool:
        return {"script": [[TextDelta("Once"), asyncio.Event()]]}
    return {
        "script": [calls(("Files-look", {})), says("never")],
        "tools": FakeTools(tool("Files-look", looking)),
    }


@pytest.mark.parametrize("is_tool", [False, True], ids=["model call", "tool"])
@pytest.mark.parametrize("is_read", [True, False], ids=["with a reader", "without a reader"])
async def test_cancel_there_stops_a_run_here_before_its_step_ends(
    tmp_path: Path, is_read: bool, is_tool: bool
) -> None:
    """Without sweeps and signals; a reader here brings the shared state up to date on its own."""
    async with without_sweeps(tmp_path, **held(is_tool)) as (a, b):
        accepted = await a.say()
        if is_tool:
            await b.until(lambda state: any(c.started for c in state.run("r1").calls.values()))
        reader = asyncio.create_task(a.items(accepted)) if is_read else None
        await b.cancel("r1")
        assert (await b.ended("r1")).status is RunStatus.CANCELLED
        if reader is not None:
            await reader


@pytest.mark.parametrize("is_read", [True, False], ids=["with a reader", "without a reader"])
async def test_approval_there_starts_its_tool_here_while_another_tool_runs(
    tmp_path: Path, is_read: bool
) -> None:
    sent = asyncio.Event()

    def send(arguments: dict[str, Any], context: ToolContext) -> str:
        sent.set()
        return "sent"

    tools = FakeTools(
        tool("Files-look", looking), tool("Mail-send", send, effect=Effect.AT_MOST_ONCE)
    )
    script = [calls(("Files-look", {}), ("Mail-send", {})), says("never")]
    async with without_sweeps(tmp_path, script=script, tools=tools) as (a, b):
        accepted = await a.say()
        await b.until(lambda state: bool(state.run("r1").pending_approvals))
        reader = asyncio.create_task(a.items(accepted)) if is_read else None
        await b.decide(*await b.approvals("r1"))
        async with asyncio.timeout(seconds(5)):
            await sent.wait()
        await b.cancel("r1")
        await b.ended("r1")
        if reader is not None:
            await reader


async def test_load_by_any_part_of_this_process_tells_the_driver(tmp_path: Path) -> None:
    """The kind of it: who brings a known thread up to date need not know of its driver."""
    async with without_sweeps(tmp_path, **held(False)) as (a, b):
        await a.engine.parts.follower.__aexit__()
        await a.say()
        await b.cancel("r1")
        await a.engine.thread("t", "ada")
        known = a.engine.parts.services.threads.known("t")
        assert known is not None and known.listeners
        assert (await b.ended("r1")).status is RunStatus.CANCELLED
        assert not known.listeners


@pytest.mark.parametrize("answer", ["decided", "cancelled"])
async def test_run_continued_at_a_closing_instance_goes_on_at_another(
    tmp_path: Path, answer: str
) -> None:
    script = [calls(("Mail-send", {"text": "x"})), says("sent")]
    async with two(tmp_path, script=script) as (a, b):
        approval_id = await waiting(a)
        # Something waits behind it, so that a cancel has to be followed by its next run.
        await a.say("next", run_id="r2", on_busy="enqueue")
        await a.parked()
        a.engine.drain()
        if answer == "decided":
            await a.decide(approval_id)
        else:
            await a.cancel("r1")
        assert (await a.store.thread(THREAD)).owner != "a"
        ended = RunStatus.COMPLETED if answer == "decided" else RunStatus.CANCELLED
        assert (await b.ended("r1")).status is ended
