"""What is promised of amounts that all instances count together.

- A step adds all of its amounts or none, whatever else counts at the same time.
- A counter lasts from its first addition by the store's wall clock, then it is as if it never was.
"""

from __future__ import annotations

import asyncio

import pytest

from sk_agents.engine.ports import Count, Store
from sk_agents.exceptions import CounterFull
from sk_agents.testing.commits import start_run
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.store_contract.case import StoreCases, snapshot

HOUR = 3600.0


def count(key: str, amount: int = 1, at_most: int | None = None, *, ttl: float = HOUR) -> Count:
    return Count(key, amount, ttl, at_most)


async def sum_of(store: Store, key: str) -> int:
    return (await store.count([count(key, 0)]))[0]


async def add_until_full(store: Store, key: str, limit: int) -> int:
    """How much this caller could add, one at a time."""
    added = 0
    while True:
        try:
            await store.count([count(key, 1, limit)])
        except CounterFull:
            return added
        added += 1


class CounterCases(StoreCases):
    async def test_counter_begins_at_nothing_and_grows(self, store: Store) -> None:
        assert await sum_of(store, "k") == 0
        assert list(await store.count([count("k", 2)])) == [2]
        assert list(await store.count([count("k", 3)])) == [5]
        assert await sum_of(store, "k") == 5

    async def test_counters_are_told_apart_by_their_whole_key(self, store: Store) -> None:
        keys = ["k", "K", "k ", "k/é 🧭", "", "a" * 300]
        await store.count([count(key, n + 1) for n, key in enumerate(keys)])
        assert [await sum_of(store, key) for key in keys] == [1, 2, 3, 4, 5, 6]

    async def test_step_adds_to_several_counters_and_answers_in_order(self, store: Store) -> None:
        await store.count([count("b", 10)])
        assert list(await store.count([count("a", 1), count("b", 2), count("c", 0)])) == [1, 12, 0]

    async def test_same_counter_twice_in_a_step_is_added_twice(self, store: Store) -> None:
        assert list(await store.count([count("k", 1), count("k", 2)])) == [3, 3]
        with pytest.raises(CounterFull):
            await store.count([count("k", 1, 4), count("k", 1, 4)])
        assert await sum_of(store, "k") == 3

    async def test_step_of_nothing_answers_nothing(self, store: Store) -> None:
        assert list(await store.count([])) == []

    async def test_limit_may_be_reached_and_not_passed(self, store: Store) -> None:
        assert list(await store.count([count("k", 5, 5)])) == [5]
        with pytest.raises(CounterFull) as refused:
            await store.count([count("k", 1, 5)])
        assert (refused.value.key, refused.value.sum) == ("k", 5)
        assert await sum_of(store, "k") == 5

    async def test_refused_step_adds_nothing_to_any_counter(self, store: Store) -> None:
        await store.count([count("full", 9)])
        with pytest.raises(CounterFull) as refused:
            await store.count([count("first"), count("full", 2, 10), count("last")])
        assert (refused.value.key, refused.value.sum) == ("full", 9)
        assert dict(await store.sums("")) == {"full": 9}

    async def test_limit_is_of_the_step_and_not_of_the_counter(self, store: Store) -> None:
        await store.count([count("k", 5, 5)])
        assert list(await store.count([count("k", 5)])) == [10]
        assert list(await store.count([count("k", 1, 20)])) == [11]

    async def test_giving_back_makes_room(self, store: Store) -> None:
        await store.count([count("k", 5, 5)])
        assert list(await store.count([count("k", -2)])) == [3]
        assert list(await store.count([count("k", 2, 5)])) == [5]

    async def test_giving_back_is_never_refused(self, store: Store) -> None:
        await store.count([count("k", 10)])
        assert list(await store.count([count("k", -1, 5), count("k", 0, 5)])) == [9, 9]

    async def test_no_sum_falls_below_nothing(self, store: Store) -> None:
        assert list(await store.count([count("k", -3)])) == [0]
        assert list(await store.count([count("k", 2)])) == [2]
        assert list(await store.count([count("k", -3)])) == [0]
        assert await sum_of(store, "k") == 0

    async def test_large_amounts_are_exact(self, store: Store) -> None:
        large = 2**53 + 1
        assert list(await store.count([count("k", large)])) == [large]
        assert list(await store.count([count("k", 1)])) == [large + 1]

    async def test_counter_is_forgotten_after_its_time(
        self, store: Store, clock: SettableClock
    ) -> None:
        await store.count([count("k", 5, ttl=60)])
        clock.advance(59)
        assert await sum_of(store, "k") == 5
        clock.advance(1)
        assert await sum_of(store, "k") == 0
        assert dict(await store.sums("")) == {}
        assert list(await store.count([count("k", 1, 5, ttl=60)])) == [1]

    async def test_later_additions_do_not_make_a_counter_last(
        self, store: Store, clock: SettableClock
    ) -> None:
        await store.count([count("k", 1, ttl=60)])
        clock.advance(40)
        await store.count([count("k", 1, ttl=60)])
        clock.advance(20)
        assert await sum_of(store, "k") == 0

    async def test_reading_and_giving_back_begin_no_counter(
        self, store: Store, clock: SettableClock
    ) -> None:
        await store.count([count("k", 0, ttl=60), count("k", -1, ttl=60)])
        assert dict(await store.sums("")) == {}
        clock.advance(59)
        await store.count([count("k", 1, ttl=60)])
        clock.advance(2)
        assert await sum_of(store, "k") == 1

    async def test_sums_are_of_the_keys_that_begin_so(self, store: Store) -> None:
        await store.count([count(key) for key in ("a", "a:1", "a:2é", "b:1", "A:1")])
        assert dict(await store.sums("a:")) == {"a:1": 1, "a:2é": 1}
        assert dict(await store.sums("c")) == {}
        assert len(await store.sums("")) == 5

    async def test_many_short_counters_leave_nothing_behind(
        self, store: Store, clock: SettableClock
    ) -> None:
        for number in range(20):
            await store.count([count(f"k{number}.{n}", ttl=5) for n in range(50)])
            clock.advance(6)
        await store.count([count("last")])
        assert dict(await store.sums("")) == {"last": 1}

    async def test_counting_changes_no_thread(self, store: Store) -> None:
        await store.commit(start_run("t", owner="o"))
        before = await snapshot(store, "t")
        await store.count([count("t"), count("run-1")])
        assert await snapshot(store, "t") == before

    async def test_racing_callers_fill_a_counter_exactly(self, store: Store) -> None:
        async with asyncio.timeout(60):
            added = await asyncio.gather(*(add_until_full(store, "k", 40) for _ in range(8)))
        assert (sum(added), await sum_of(store, "k")) == (40, 40)
