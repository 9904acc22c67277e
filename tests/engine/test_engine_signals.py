"""What wakes readers at once: none of them looks at the store by itself here."""

import asyncio
from pathlib import Path

import pytest

from sk_agents.engine.events import Event
from sk_agents.engine.models import RunStatus
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.run import driver, drivers
from sk_agents.engine.turns import TextDelta
from sk_agents.exceptions import ShuttingDown, StoreUnavailable
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.signals.local import LocalSignals
from sk_agents.testing.scripted_model import Turn, calls, says
from tests.engine.kit import BOUND, THREAD, UNSWEPT, Setup, Talk, talking, waiting
from tests.engine.test_engine_store_trouble import failing
from tests.engine.test_engine_troubles import idle
from tests.engine.troubled_store import TroubledStore

NEVER = 1e6


@pytest.fixture(autouse=True)
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does a driver."""
    monkeypatch.setattr(drivers, "PERIOD_SECONDS", NEVER)


class TellingSignals(LocalSignals):
    """Remembers what it was to tell other instances."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        if not local:
            self.told.append(thread_id)
        super().notify(thread_id, local=local)


def held(text: str = "Once") -> Turn:
    return [TextDelta(text), asyncio.Event()]


async def seen(talk: Talk, text: str) -> None:
    """Until a reader here has been given this live text."""
    shown = ""
    async with asyncio.timeout(BOUND):
        async for items in talk.engine.watch(THREAD):
            shown += "".join(item.content for item in items if isinstance(item, LiveDelta))
            if text in shown:
                return


async def test_other_instances_are_told_of_each_commit_and_of_nothing_else() -> None:
    store, signals = TroubledStore(), TellingSignals()
    script = [calls(("Files-look", {})), says("done"), held()]
    async with talking(store, script=script, signals=signals, lease_ttl=UNSWEPT) as talk:
        accepted = await talk.say()
        await talk.items(accepted)
        assert len(signals.told) == len(store.commits) == 4
        await talk.say()
        reader = asyncio.ensure_future(seen(talk, "never"))
        await seen(talk, "Once")
        talk.engine.drain()
        with pytest.raises(ShuttingDown):
            await reader
        await talk.parked()
    assert len(signals.told) == len(store.commits) == 6


async def test_readers_of_what_cannot_be_stored_are_told_and_no_other_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PAUSES", (0.0, 0.01))
    signals = TellingSignals()
    async with failing(tmp_path, signals=signals) as (talk, store):
        store.left = None
        accepted = await talk.say()
        told = len(signals.told)
        with pytest.raises(StoreUnavailable):
            await talk.items(accepted)
        assert len(signals.told) == told
        store.left = 0


async def test_reader_sees_the_text_of_a_run_that_is_taken_over_here() -> None:
    """It waits while nobody drives the run, and listens once this instance does."""
    store = MemoryStore()
    setup = Setup([calls(("Mail-send", {})), held("Again")], lease_ttl=UNSWEPT)
    async with talking(store, setup) as there, talking(store, setup, owner="b") as here:
        approval_id = await waiting(there)
        await there.parked()
        reader = asyncio.ensure_future(seen(here, "Again"))
        await idle()
        assert not reader.done()
        await here.decide(approval_id)
        await reader
        await here.cancel("r1")


async def test_what_another_instance_has_stored_reaches_readers_with_the_next_look() -> None:
    store = MemoryStore()
    setup = Setup([held()], lease_ttl=UNSWEPT)
    async with talking(store, setup) as here, talking(store, setup, owner="b") as there:
        accepted = await here.say()
        reader = asyncio.ensure_future(here.items(accepted))
        await idle()
        await there.cancel("r1")
        await idle()
        assert not reader.done()
        await here.engine.parts.follower.look()
        items = await reader
        assert sum(isinstance(item, Event) for item in items) == len(await here.log())
        assert (await here.ended("r1")).status is RunStatus.CANCELLED


async def test_look_that_finds_nothing_new_wakes_no_reader() -> None:
    async with talking(MemoryStore(), script=[held()], lease_ttl=UNSWEPT) as talk:
        await talk.say()
        await seen(talk, "Once")
        await idle()
        async with talk.engine.parts.services.signals.subscribe(THREAD) as changes:
            await talk.engine.parts.follower.look()
            assert not await changes.wait(0.01)


async def test_instance_looks_at_a_thread_at_once_when_it_is_told_of_a_commit() -> None:
    store, signals = TroubledStore(), LocalSignals()
    setup = Setup([held(), held()], lease_ttl=UNSWEPT)
    async with (
        talking(store, setup, signals=signals) as here,
        talking(store, setup, owner="b") as there,
    ):
        await here.say()
        await here.say(thread="u", run_id="ru")
        await there.cancel("r1")
        signals.notified_elsewhere("unknown")
        await idle()
        assert here.engine.parts.drivers.is_driven(THREAD)
        signals.notified_elsewhere(THREAD)
        assert (await here.ended("r1")).status is RunStatus.CANCELLED
        assert here.engine.parts.drivers.is_driven("u")


async def test_reader_who_waits_sees_the_text_of_a_run_that_is_driven_at_last() -> None:
    """Its start was stored and not answered; nothing is stored when its driver begins."""
    gate = asyncio.Event()
    store = TroubledStore()
    async with talking(store, script=[[gate, *held()]], lease_ttl=UNSWEPT) as talk:
        await talk.sweep()
        store.after_commit = [StoreUnavailable()]
        with pytest.raises(StoreUnavailable):
            await talk.say()
        reading = asyncio.ensure_future(seen(talk, "Once"))
        await idle()
        await talk.sweep()
        gate.set()
        await reading
