"""How often an instance does by itself what nobody asks it to do, in virtual time."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Collection, Coroutine, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from sk_agents.engine.agent import Agent
from sk_agents.engine.defaults import RandomIds
from sk_agents.engine.log.commits import Absent, Claim
from sk_agents.engine.models import NewThread, Thread
from sk_agents.engine.run import drivers
from sk_agents.engine.run.drivers import Drivers, Follower
from sk_agents.engine.run.lease_keeper import STALL, LeaseKeeper
from sk_agents.engine.run.recovery import Sweeper
from sk_agents.engine.services import PAUSES, Services, patiently
from sk_agents.engine.threads import retention
from sk_agents.engine.threads.known import KnownThreads
from sk_agents.engine.threads.retention import RetentionKeeper, RetentionRules
from sk_agents.exceptions import StoreBusy
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.signals.local import LocalSignals
from sk_agents.testing import ScriptedModel, SettableClock
from sk_agents.testing.commits import create, new_commit
from tests.engine import builders as b
from tests.engine.fake_tools import FakePolicy, FakeTools
from tests.patience import seconds
from tests.simulation.virtual_loop import VirtualLoop

TIMES = 60


class NotingStore(MemoryStore):
    """Notes when it was asked for orphans, and for a turn at removing old threads."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def _note(self) -> None:
        self.asked.append(asyncio.get_running_loop().time())

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        self._note()
        return await super().orphans(limit)

    async def count(self, *arguments: Any) -> Any:
        self._note()
        return await super().count(*arguments)

    @property
    def pauses(self) -> list[float]:
        return [later - before for before, later in pairwise(self.asked)]


def services_over(store: MemoryStore) -> Services:
    clock = SettableClock()
    lease = LeaseKeeper(store, clock, "a")
    return Services(store, LocalSignals(), clock, RandomIds(), lease, KnownThreads(store))


def in_virtual_time(story: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop(Random(0))
    try:
        loop.run_until_complete(story)
        assert not loop.unhandled
    finally:
        loop.close()


def test_sweeps_of_several_instances_drift_apart() -> None:
    store = NotingStore()

    async def story() -> None:
        services = services_over(store)
        async with Sweeper(services, Drivers(services, {}), interval=10.0):
            await asyncio.sleep(10.0 * TIMES)

    in_virtual_time(story())
    assert store.asked[0] == 0.0
    assert 5.0 <= min(store.pauses) < 7.0
    assert 13.0 < max(store.pauses) <= 15.0


class HeadsNoted(NotingStore):
    """Notes when it was asked how far threads are instead."""

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        return ()

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        self._note()
        return await super().heads(thread_ids)


def test_driven_runs_are_looked_at_once_in_a_period() -> None:
    store = HeadsNoted()

    async def story() -> None:
        services = services_over(store)
        agent = Agent("a", ScriptedModel([[asyncio.Event()]]), FakeTools(), FakePolicy(), "")
        new = NewThread("ada", agent="a")
        await store.commit(new_commit("t", Absent(new), b.started(), lease=Claim("a")))
        async with Drivers(services, {"a": agent}) as driven, Follower(services, driven):
            driven.drive(await services.threads.load("t"))
            await asyncio.sleep(drivers.PERIOD_SECONDS * (TIMES + 0.5))

    in_virtual_time(story())
    assert store.pauses == pytest.approx([drivers.PERIOD_SECONDS] * (TIMES - 1))


def test_what_the_store_does_not_take_is_tried_after_growing_pauses_and_then_evenly() -> None:
    tried: list[float] = []
    pauses = [*PAUSES, PAUSES[-1], PAUSES[-1]]

    async def work() -> str:
        tried.append(asyncio.get_running_loop().time())
        if len(tried) <= len(pauses):
            raise StoreBusy
        return "done"

    async def story() -> None:
        assert await patiently(work) == "done"

    in_virtual_time(story())
    assert [later - before for before, later in pairwise(tried)] == pytest.approx(pauses)


def test_old_threads_are_looked_for_some_times_in_a_period() -> None:
    store = NotingStore()

    async def story() -> None:
        services = services_over(store)
        async with RetentionKeeper(services, store, RetentionRules()):
            await asyncio.sleep(retention.PASS_EVERY_SECONDS * TIMES / 4)

    in_virtual_time(story())
    shortest, longest = (retention.PASS_EVERY_SECONDS * one for one in retention.PAUSED_SHARE)
    assert shortest <= store.asked[0] <= longest
    assert shortest <= min(store.pauses) < 1.5 * shortest
    assert 0.9 * longest < max(store.pauses) <= longest


class RenewedStore(MemoryStore):
    """Says how often leases were renewed."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals = threading.Semaphore(0)

    def renew(self, owner: str, ttl: float) -> None:
        super().renew(owner, ttl)
        self.renewals.release()


async def test_loop_that_ticks_keeps_its_leases_however_long_it_lives() -> None:
    clock, store = SettableClock(), RenewedStore()
    async with LeaseKeeper(store, clock, "a", ttl=0.9):
        for _ in range(3):
            clock.advance(STALL * 2 / 3)
            assert await asyncio.to_thread(store.renewals.acquire, timeout=seconds(5))
            while store.renewals.acquire(blocking=False):
                pass


async def test_loop_ticks_no_more_for_leases_that_are_no_longer_kept() -> None:
    """A timer that is left would keep its instance in memory."""
    lease = LeaseKeeper(MemoryStore(), SettableClock(), "a", ttl=900.0)
    async with lease:
        assert lease.is_fresh
    left = weakref.ref(lease)
    del lease
    gc.collect()
    assert left() is None


@pytest.mark.parametrize("pages", [1, 3])
def test_pass_over_several_pages_leaves_the_store_to_others_in_between(
    pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 2)
    store = NotingStore()

    async def story() -> None:
        keeper = RetentionKeeper(services_over(store), store, RetentionRules())
        for number in range(2 * pages - 1):
            await store.commit(create(f"t{number}"))
        loop = asyncio.get_running_loop()
        began = loop.time()
        done = await keeper.sweep()
        assert done is not None
        assert done.seen == 2 * pages - 1
        assert loop.time() - began == pytest.approx((pages - 1) * retention.BREATH_SECONDS)

    in_virtual_time(story())
