"""What a user may do in a window is given out in blocks, and never past the limit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sk_agents.engine.ports import Count
from sk_agents.exceptions import LimitExceeded
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.spending.allowances import BLOCKS, Allowance
from sk_agents.spending.limits import HOUR_SECONDS, Limit, strictest
from sk_agents.spending.usage import DAY_SECONDS
from sk_agents.testing import SettableClock


class CountingStore(MemoryStore):
    asked = 0

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        self.asked += 1
        return await super().count(additions)


def allowance(store: MemoryStore, clock: SettableClock, most: int) -> Allowance:
    return Allowance(store, clock, name="r", what="requests", most=most, seconds=60)


async def test_used_up_allowance_asks_the_store_no_more_until_the_next_window() -> None:
    clock = SettableClock()
    store = CountingStore(clock=clock)
    requests = allowance(store, clock, most=3)
    assert await requests.take("ann", 5) == 3
    asked = store.asked
    for _ in range(4):
        with pytest.raises(LimitExceeded):
            await requests.require("ann")
    assert store.asked == asked
    clock.advance(60)
    await requests.require("ann")


async def test_a_block_is_given_out_without_the_store() -> None:
    clock = SettableClock()
    store = CountingStore(clock=clock)
    requests = allowance(store, clock, most=5 * BLOCKS)
    for _ in range(5):
        await requests.require("ann")
    assert store.asked == 1
    await requests.require("ann")
    assert store.asked == 2


async def test_no_more_is_counted_than_what_is_missing_and_a_block_at_least() -> None:
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    requests = allowance(store, clock, most=2 * BLOCKS)
    counted = []
    for wanted in (1, 2, 6):
        assert await requests.take("ann", wanted) == wanted
        counted.append(sum((await store.sums("r\t")).values()))
    assert counted == [2, 4, 9]


async def test_limit_that_was_lowered_below_what_is_counted_lets_nothing_through() -> None:
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    assert await allowance(store, clock, most=100).take("ann", 100) == 100
    lowered = allowance(store, clock, most=10)
    with pytest.raises(LimitExceeded):
        await lowered.require("ann")
    assert await lowered.take("ann", 1) == 0


def test_of_limits_that_count_the_same_the_smallest_holds() -> None:
    own, server = Limit("run", "tokens", 10, is_own=True), Limit("run", "tokens", 5)
    assert strictest([own, server]) == strictest([server, own]) == (server,)


def test_what_a_user_spends_on_one_agent_is_counted_apart() -> None:
    own, server = Limit("user", "tokens", 10, is_own=True), Limit("user", "tokens", 5)
    assert strictest([own, server]) == (own, server)


def test_counter_outlives_the_time_that_it_counts() -> None:
    assert Limit("hour", "tokens", 1).ttl == 2 * HOUR_SECONDS
    assert Limit("day", "tokens", 1).ttl == 2 * DAY_SECONDS
