"""What a user may do in a window is given out in blocks, and never past the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sk_agents.config.amounts import Amounts
from sk_agents.engine.models import Cost, Usage
from sk_agents.engine.ports import Count
from sk_agents.exceptions import LimitExceeded
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.spending import allowances
from sk_agents.spending.allowances import BLOCKS, Allowance
from sk_agents.spending.limits import HOUR_SECONDS, Limit, limits_of, strictest
from sk_agents.spending.usage import DAY_SECONDS, NANO
from sk_agents.testing import SettableClock


class CountingStore(MemoryStore):
    asked = 0

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        self.asked += 1
        await asyncio.sleep(0)  # others come while it is asked
        return await super().count(additions)


def allowance(store: MemoryStore, clock: SettableClock, most: int, seconds: int = 60) -> Allowance:
    return Allowance(store, clock, name="r", what="requests", most=most, seconds=seconds)


async def test_used_up_allowance_asks_the_store_no_more_until_the_next_window() -> None:
    clock = SettableClock()
    store = CountingStore(clock=clock)
    requests = allowance(store, clock, most=3)
    assert [await requests.take("ann", wanted) for wanted in (1, 5)] == [1, 2]
    asked = store.asked
    assert asked == 3, "for one, for more than there is, and for the rest"
    clock.advance(59)
    for _ in range(4):
        with pytest.raises(LimitExceeded):
            await requests.require("ann")
    assert store.asked == asked
    clock.advance(1)
    await requests.require("ann")


@pytest.mark.parametrize(("window", "every"), [(60, "a minute"), (3600, "an hour")])
async def test_refusal_says_how_much_is_allowed_and_when_it_is_again(
    window: int, every: str
) -> None:
    clock = SettableClock()
    clock.advance(10)
    requests = allowance(MemoryStore(clock=clock), clock, most=3, seconds=window)
    for _ in range(3):
        await requests.require("ann")
    with pytest.raises(LimitExceeded, match=f"^You may make 3 requests {every}[.]$") as refused:
        await requests.require("ann")
    assert refused.value.retry_after == window - 10


async def test_of_a_small_limit_no_more_is_counted_than_was_used() -> None:
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    await allowance(store, clock, most=3).require("ann")
    assert list((await store.sums("r\t")).values()) == [1]


async def test_callers_at_once_take_one_block_and_learn_of_its_end_together() -> None:
    clock = SettableClock()
    store = CountingStore(clock=clock)
    pairs = allowance(store, clock, most=2 * BLOCKS)
    assert await asyncio.gather(*(pairs.take("ann", 1) for _ in range(2))) == [1, 1]
    assert list((await store.sums("r\t")).values()) == [2]
    store.asked = 0
    single = Allowance(store, clock, name="s", what="requests", most=1, seconds=60)
    assert await asyncio.gather(*(single.take("ann", 1) for _ in range(3))) == [1, 0, 0]
    assert store.asked == 2


async def test_user_who_was_not_seen_for_longest_is_forgotten_and_takes_another_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowances, "MAX_USERS", 2)
    clock = SettableClock()
    store = CountingStore(clock=clock)
    requests = allowance(store, clock, most=5 * BLOCKS)
    asked = []
    for user in ("ann", "bob", "ann", "eve", "ann", "bob"):
        before = store.asked
        await requests.require(user)
        asked.append(store.asked - before)
    assert asked == [1, 1, 0, 1, 0, 1]


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


@pytest.mark.parametrize(
    ("unit", "usage", "counted"),
    [
        ("tokens", Usage(prompt_tokens=3, completion_tokens=4), 7),
        ("USD", Usage(prompt_tokens=3), 0),
        ("USD", Usage(cost=Cost(amount=0.5, currency="USD")), NANO // 2),
        ("USD", Usage(cost=Cost(amount=0.5, currency="EUR")), 0),
    ],
)
def test_limit_counts_what_is_of_its_unit(unit: str, usage: Usage, counted: int) -> None:
    assert Limit("day", unit, 1).amount(usage) == counted


def test_amount_is_shown_in_its_unit_and_as_short_as_it_is() -> None:
    assert Limit("day", "tokens", 1).shown(1_000) == "1000 tokens"
    dollars = Limit("day", "USD", 1)
    assert [dollars.shown(amount) for amount in (NANO, 10 * NANO, NANO // 4)] == [
        *("1 USD", "10 USD", "0.25 USD")
    ]


def test_limits_of_the_server_are_no_agents_own() -> None:
    both = limits_of("user", Amounts(cost=2.0, currency="USD", tokens=5))
    assert both == [Limit("user", "USD", 2 * NANO), Limit("user", "tokens", 5)]
    assert not any(limit.is_own for limit in both)


def test_what_a_user_spends_on_one_agent_is_counted_apart() -> None:
    own, server = Limit("user", "tokens", 10, is_own=True), Limit("user", "tokens", 5)
    assert strictest([own, server]) == (own, server)


def test_counter_outlives_the_time_that_it_counts() -> None:
    assert Limit("hour", "tokens", 1).ttl == 2 * HOUR_SECONDS
    assert Limit("day", "tokens", 1).ttl == 2 * DAY_SECONDS
