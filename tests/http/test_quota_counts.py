"""How often a user's chats and approvals are counted, and for how long a count is believed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.models import Entry
from sk_agents.engine.ports import ThreadPage, ThreadQuery
from sk_agents.engine.threads.catalog import ThreadCatalog
from sk_agents.exceptions import LimitExceeded
from sk_agents.http.limits import Quotas, StreamSlots
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.signals.local import LocalSignals
from sk_agents.testing import SequentialIds
from sk_agents.testing.commits import USER, ask, create, start_run


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.counts = 0

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        self.counts += 1
        return await super().threads(query)

    async def open_entries(self, *place: Any, **options: Any) -> Sequence[Entry]:
        self.counts += 1
        return await super().open_entries(*place, **options)


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
async def catalog(store: CountingStore) -> AsyncIterator[ThreadCatalog]:
    engine = Engine(
        store, {}, signals=LocalSignals(), clock=SystemClock(), ids=SequentialIds(), owner="me"
    )
    yield engine.catalog


async def chats(store: CountingStore, *names: str) -> None:
    for name in names:
        await store.commit(create(name, surface="chats"))


async def is_full(counted: Quotas, catalog: ThreadCatalog) -> bool:
    try:
        await counted.admit(catalog, USER, makes_chat=True)
    except LimitExceeded:
        return True
    return False


async def test_chats_are_counted_once_and_again_when_the_count_is_old(
    store: CountingStore, catalog: ThreadCatalog, time: Time
) -> None:
    counted = Quotas("chats", chats=100, pending=None, calls=8, now=time)
    for _ in range(10):
        assert not await is_full(counted, catalog)
    assert store.counts == 1
    time.now += 600
    assert not await is_full(counted, catalog)
    assert store.counts == 1
    time.now += 1
    assert not await is_full(counted, catalog)
    assert store.counts == 2


async def test_full_count_is_believed_for_a_minute_only(
    store: CountingStore, catalog: ThreadCatalog, time: Time
) -> None:
    counted = Quotas("chats", chats=2, pending=None, calls=8, now=time)
    await chats(store, "c1", "c2")
    assert await is_full(counted, catalog)
    # Another instance deletes one.
    await store.delete("c1", next_seq=1)
    time.now += 60
    assert await is_full(counted, catalog)
    assert store.counts == 1
    time.now += 1
    assert not await is_full(counted, catalog)


async def test_runs_begin_without_a_look_as_long_as_they_cannot_pass_the_limit(
    store: CountingStore, catalog: ThreadCatalog, time: Time
) -> None:
    """Of 20 approvals each run can want 8: two may begin, then it is counted again."""
    counted = Quotas("chats", chats=100, pending=20, calls=8, now=time)
    looks = []
    for _ in range(4):
        await counted.admit(catalog, USER, makes_chat=False)
        looks.append(store.counts)
    assert looks == [1, 1, 2, 2]
    time.now += 601
    await counted.admit(catalog, USER, makes_chat=False)
    assert store.counts == 3


async def test_last_room_is_given_to_one_run_at_a_time(
    store: CountingStore, catalog: ThreadCatalog, time: Time
) -> None:
    counted = Quotas("chats", chats=100, pending=2, calls=8, now=time)
    thread = (await store.commit(start_run("c1"))).thread
    await store.commit(ask(thread, "a1"))
    for expected in (1, 2, 3):
        await counted.admit(catalog, USER, makes_chat=False)
        assert store.counts == expected
    other = (await store.commit(start_run("c2", "run-2"))).thread
    await store.commit(ask(other, "a2"))
    with pytest.raises(LimitExceeded):
        await counted.admit(catalog, USER, makes_chat=False)


async def test_released_chat_makes_room_and_never_more_than_there_is(
    store: CountingStore, catalog: ThreadCatalog, time: Time
) -> None:
    counted = Quotas("chats", chats=1, pending=None, calls=8, now=time)
    assert not await is_full(counted, catalog)
    assert await is_full(counted, catalog)
    counted.release_chat(USER)
    counted.release_chat(USER)
    assert not await is_full(counted, catalog)
    assert await is_full(counted, catalog)


def test_slot_that_is_released_twice_makes_room_for_one_stream() -> None:
    slots = StreamSlots(per_user=2)
    first, second = slots.held(USER), slots.held(USER)
    first.release()
    first.release()
    assert slots.by_user == {USER: 1}
    slots.held(USER)
    with pytest.raises(LimitExceeded):
        slots.held(USER)
    second.release()
    assert slots.by_user == {USER: 1}


def test_user_without_open_streams_is_forgotten() -> None:
    slots = StreamSlots()
    with slots.held(USER):
        assert dict(slots.by_user) == {USER: 1}
    assert dict(slots.by_user) == {}
