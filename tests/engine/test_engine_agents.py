"""Which agent answers: the run's own, else its thread's, else the first there is."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sk_agents.engine.agent import Agent
from sk_agents.engine.commands import EditRun, StartRun, SteerRun
from sk_agents.engine.defaults import NoBudget, SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import RunEnded
from sk_agents.engine.models import NewThread, RunStatus, Usage
from sk_agents.engine.ports import Budget, Reservation, Spender
from sk_agents.exceptions import BudgetExceeded, InvalidInput
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.redaction import HIDDEN, Redactor
from sk_agents.signals.local import LocalSignals
from sk_agents.testing import ScriptedModel, SequentialIds
from sk_agents.testing.scripted_model import says
from tests.engine.fake_tools import FakePolicy, FakeTools
from tests.engine.kit import said
from tests.patience import seconds

# What the second message of a test says.
NUMBER = "2718281828"


@asynccontextmanager
async def serving(
    store: MemoryStore,
    *names: str,
    owner: str = "me",
    gate: asyncio.Event | None = None,
    budget: Budget | None = None,
    redacting: str | None = None,
) -> AsyncIterator[Engine]:
    """An engine whose agents say their names, however often they are asked, behind a gate. The one
    that is `redacting` keeps numbers to itself."""
    agents = {
        name: Agent(
            name,
            ScriptedModel([[*([gate] if gate else []), *says(name)]] * 9),
            FakeTools(),
            FakePolicy(),
            "be kind",
            redaction=Redactor.of([NUMBER]) if name == redacting else None,
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
        budget=budget,
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


class Asked(NoBudget):
    """Notes the runs for which a model is asked."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    async def reserve(self, spender: Spender, estimate: Usage) -> Reservation:
        self.runs.append(spender.run_id)
        return await super().reserve(spender, estimate)


async def test_queued_run_of_an_agent_that_is_missing_here_is_driven_where_it_is() -> None:
    """The instance that started the first run does not know the second's agent."""
    store, gate, asked = MemoryStore(), asyncio.Event(), Asked()
    async with (
        serving(store, "first", gate=gate, budget=asked) as here,
        serving(store, "first", "second", owner="other") as there,
    ):
        await here.start(StartRun("t", "ada", "r1", said("1"), new=NewThread("ada", agent="first")))
        await there.start(
            StartRun("t", "ada", "r2", said(NUMBER), agent="second", on_busy="enqueue")
        )
        gate.set()
        async with asyncio.timeout(seconds(5)):
            async for _ in there.watch("t", run_id="r2"):
                pass
        ends = [e for e in await store.events_after("t", 0) if isinstance(e, RunEnded)]
        assert [end.status for end in ends] == [RunStatus.COMPLETED] * 2
    assert asked.runs == ["r1"]


class OneUsedUp(NoBudget):
    """No turn of this agent is admitted any more."""

    agent: str | None = None

    async def admit(self, spender: Spender) -> None:
        if spender.agent == self.agent:
            raise BudgetExceeded


async def make(engine: Engine, of_thread: str, of_run: str | None) -> None:
    new = NewThread("ada", agent=of_thread)
    await engine.start(StartRun("new", "ada", "r2", said(NUMBER), new=new, agent=of_run))


async def begin(engine: Engine, of_thread: str, of_run: str | None) -> None:
    await engine.start(StartRun("t", "ada", "r2", said(NUMBER), agent=of_run))
    await engine.result("t", "r2")


async def enqueue(engine: Engine, of_thread: str, of_run: str | None) -> None:
    await engine.start(StartRun("t", "ada", "r2", said(NUMBER), agent=of_run, on_busy="enqueue"))


async def edit(engine: Engine, of_thread: str, of_run: str | None) -> None:
    message = said(NUMBER)
    await engine.edit(EditRun("t", "ada", "r2", agent=of_run, edited_run="r1", message=message))


async def repeat(engine: Engine, of_thread: str, of_run: str | None) -> None:
    """By the agent that was asked first."""
    await engine.edit(EditRun("t", "ada", "r2", edited_run="r1"))


async def steer(engine: Engine, of_thread: str, of_run: str | None) -> None:
    await engine.steer(SteerRun("t", "ada", "r1", NUMBER))


@pytest.mark.parametrize("of_run", [None, "other"])
@pytest.mark.parametrize("say", [make, begin, enqueue, edit, repeat, steer])
async def test_turn_is_refused_when_the_budget_of_its_own_agent_is_used_up(
    say: Callable[[Engine, str, str | None], Awaitable[None]], of_run: str | None
) -> None:
    """The thread is one of `first`, and the run may be another agent's."""
    answers, idle = (of_run, "first") if of_run is not None else ("first", "other")
    store, budget, gate = MemoryStore(), OneUsedUp(), asyncio.Event()
    is_busy = say in (enqueue, steer)
    if not is_busy:
        gate.set()
    earlier = of_run if say in (repeat, steer) else None
    async with serving(store, "first", "other", gate=gate, budget=budget) as engine:
        new = NewThread("ada", agent="first")
        await engine.start(StartRun("t", "ada", "r1", said("1"), new=new, agent=earlier))
        if not is_busy:
            await engine.result("t", "r1")
        budget.agent = answers
        with pytest.raises(BudgetExceeded):
            await say(engine, "first", of_run)
        budget.agent = idle
        await say(engine, "first", of_run)
        gate.set()


@pytest.mark.parametrize("of_run", [None, "other"])
@pytest.mark.parametrize("say", [make, begin, enqueue, edit, steer])
async def test_secret_is_hidden_by_the_agent_that_answers(
    say: Callable[[Engine, str, str | None], Awaitable[None]], of_run: str | None
) -> None:
    """Neither the first agent nor, if the run is another's, the thread's own says what is one."""
    store, gate = MemoryStore(), asyncio.Event()
    answers = of_run or "second"
    is_busy, thread = say in (enqueue, steer), "new" if say is make else "t"
    if not is_busy:
        gate.set()
    async with serving(store, "first", "second", "other", gate=gate, redacting=answers) as engine:
        new = NewThread("ada", agent="second")
        earlier = of_run if say is steer else None
        await engine.start(StartRun("t", "ada", "r1", said("1"), new=new, agent=earlier))
        if not is_busy:
            await engine.result("t", "r1")
        await say(engine, "second", of_run)
        gate.set()
        said_here = [event.model_dump_json() for event in await store.events_after(thread, 0)]
        assert any(HIDDEN in event for event in said_here)
        assert not any(NUMBER in event for event in said_here)
