"""Whoever asks for a run may be cut off while its commit is on its way: the run is driven all the
same, and soon, although nobody told the engine that it is there."""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.engine.agent import Agent
from sk_agents.engine.commands import StartRun
from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.log.commits import Commit, Committed
from sk_agents.engine.models import NewThread, Part, ThreadStatus, UserInput
from sk_agents.exceptions import StoreUnavailable
from sk_agents.persistence.liveness import new_owner
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.signals.local import LocalSignals
from sk_agents.testing import ScriptedModel
from sk_agents.testing.scripted_model import says
from tests.chaos.engine_process import TTL, USER, RandomIds
from tests.chaos.ledger_tools import LedgerTools, SignaturesAsk
from tests.patience import seconds


class LosingStore(MemoryStore):
    """Stores the first commit but does not say so in time: it waits, then says `answer`."""

    def __init__(self, answer: Exception | None) -> None:
        super().__init__()
        self.stored = asyncio.Event()
        self.may_answer = asyncio.Event()
        self._answer = answer

    async def commit(self, commit: Commit) -> Committed:
        done = await super().commit(commit)
        if not self.stored.is_set():
            self.stored.set()
            await self.may_answer.wait()
            if self._answer is not None:
                raise self._answer
        return done


@pytest.mark.parametrize("answer", [None, StoreUnavailable()], ids=["cancelled", "store lost"])
async def test_a_run_whose_starter_never_heard_of_its_commit_is_driven_all_the_same(
    answer: Exception | None,
) -> None:
    """Red with the build that drives only what it was told of: the lease is its own, so no other
    instance may take it either."""
    message = UserInput(parts=(Part(content="hello"),))
    start = StartRun("t", USER, "t", message, new=NewThread(USER, agent="clerk"), fresh=True)
    store = LosingStore(answer)
    model = ScriptedModel([says("hello")])
    clerk = Agent("clerk", model, LedgerTools(0, {}), SignaturesAsk())
    engine = Engine(
        store,
        {"clerk": clerk},
        signals=LocalSignals(),
        clock=SystemClock(),
        ids=RandomIds(),
        owner=new_owner(),
        lease_ttl=TTL,
    )
    async with asyncio.timeout(seconds(20)), store, engine:
        asked = asyncio.create_task(engine.start(start))
        await store.stored.wait()
        if answer is None:
            asked.cancel()
        store.may_answer.set()
        await asyncio.gather(asked, return_exceptions=True)
        assert asked.cancelled() or asked.exception() is answer
        async for _ in engine.watch("t", run_id="t"):
            pass
        assert (await store.thread("t")).status == ThreadStatus.COMPLETED
