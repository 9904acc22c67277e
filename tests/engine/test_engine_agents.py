"""Which agent answers: the run's own, else its thread's, else the first there is."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sk_agents.engine.agent import Agent
from sk_agents.engine.commands import StartRun
from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import RunEnded
from sk_agents.engine.models import NewThread, RunStatus
from sk_agents.exceptions import InvalidInput
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.signals.local import LocalSignals
from sk_agents.testing import ScriptedModel, SequentialIds
from sk_agents.testing.scripted_model import says
from tests.engine.fake_tools import FakePolicy, FakeTools
from tests.engine.kit import said
from tests.patience import seconds


@asynccontextmanager
async def serving(
    store: MemoryStore, *names: str, owner: str = "me", gate: asyncio.Event | None = None
) -> AsyncIterator[Engine]:
    """An engine whose agents say their names, however often they are asked, behind a gate."""
    agents = {
        name: Agent(
            name,
            ScriptedModel([[*([gate] if gate else []), *says(name)]] * 9),
            FakeTools(),
            FakePolicy(),
            "be kind",
        )
        for name in names
    }
    engine = Engine(
        store,
        agents,
        signals=LocalSignals(),
        clock=SystemClock(),
        ids=SequentialIds(zlib.crc32(owner.encode()) << 24),
        owner=owner,
        lease_ttl=0.5,
    )
    async with engine:
        yield engine


async def answer(engine: Engine, run_id: str, *, thread_agent: str, **fields: Any) -> str:
    new = NewThread("ada", agent=thread_agent)
    async with asyncio.timeout(seconds(5)):
        accepted = await engine.start(
            StartRun("t", "ada", run_id, said("who are you?"), new=new, **fields)
        )
        run = await engine.result(accepted.thread_id, accepted.run_id)
    assert run.answer is not None
    return run.answer.content


@pytest.mark.parametrize(
    ("of_thread", "of_run", "answers"),
    [("", None, "first"), ("second", None, "second"), ("second", "first", "first")],
)
async def test_agent_of_the_run_comes_before_the_threads_and_that_before_the_first(
    of_thread: str, of_run: str | None, answers: str
) -> None:
    async with serving(MemoryStore(), "first", "second") as engine:
        assert await answer(engine, "r1", thread_agent=of_thread, agent=of_run) == answers


async def test_run_with_an_agent_of_its_own_does_not_change_the_threads() -> None:
    async with serving(MemoryStore(), "first", "second") as engine:
        assert await answer(engine, "r1", thread_agent="second", agent="first") == "first"
        assert await answer(engine, "r2", thread_agent="second") == "second"


@pytest.mark.parametrize(("of_thread", "of_run"), [("gone", None), ("first", "gone")])
async def test_start_with_an_unknown_agent_is_refused_and_makes_no_thread(
    of_thread: str, of_run: str | None
) -> None:
    store = MemoryStore()
    async with serving(store, "first") as engine:
        with pytest.raises(InvalidInput):
            await answer(engine, "r1", thread_agent=of_thread, agent=of_run)
    assert store.metrics()["threads"] == 0


async def test_queued_run_of_an_agent_that_is_missing_here_is_driven_where_it_is() -> None:
    """The instance that started the first run does not know the second's agent."""
    store, gate = MemoryStore(), asyncio.Event()
    async with (
        serving(store, "first", gate=gate) as here,
        serving(store, "first", "second", owner="other") as there,
    ):
        await here.start(StartRun("t", "ada", "r1", said("1"), new=NewThread("ada", agent="first")))
        await there.start(StartRun("t", "ada", "r2", said("2"), agent="second", on_busy="enqueue"))
        gate.set()
        async with asyncio.timeout(seconds(5)):
            async for _ in there.watch("t", run_id="r2"):
                pass
        ends = [e for e in await store.events_after("t", 0) if isinstance(e, RunEnded)]
        assert [end.status for end in ends] == [RunStatus.COMPLETED] * 2
