"""What is set aside of a budget saves asking the store, and spends no more than there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from sk_agents.engine.models import Usage
from sk_agents.engine.ports import Count, Reservation, Spender
from sk_agents.exceptions import BudgetExceeded, StoreUnavailable
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.spending import budgets
from sk_agents.spending.advances import SHARE
from sk_agents.spending.budgets import AgentBudget, StoreBudget
from sk_agents.spending.limits import Limit
from sk_agents.spending.usage import UsageLedger
from sk_agents.testing import SettableClock
from tests.patience import seconds

CLOCK = SettableClock()
ANN = Spender("ann", "a", "r1")
MOST = 100_000
# What a call may use, and what it does use.
ESTIMATE, USED = Usage(prompt_tokens=100), Usage(prompt_tokens=10)
# Of a small budget.
TENTH = Usage(prompt_tokens=10)


class AskedStore(MemoryStore):
    """Counts how often it is asked; `before` is called first each time, `after` at its end."""

    asked = 0
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        self.asked += 1
        if self.before is not None:
            self.before()
        sums = await super().count(additions)
        if self.after is not None:
            self.after()
        return sums


def instance(store: MemoryStore, *limits: Limit, soft: float | None = None) -> StoreBudget:
    agents = {"a": AgentBudget("a", "m", limits, soft)}
    return StoreBudget(store, CLOCK, agents, UsageLedger(store, CLOCK, 0))


def per_user(most: int) -> Limit:
    return Limit("user", "tokens", most)


async def counted(store: MemoryStore) -> int:
    return sum((await store.sums("budget\t")).values())


async def call(budget: StoreBudget, *, used: Usage = USED, spender: Spender = ANN) -> str | None:
    return await budget.settle(await budget.reserve(spender, ESTIMATE), used)


async def test_most_of_many_calls_ask_no_store() -> None:
    store = AskedStore(clock=CLOCK)
    budget = instance(store, per_user(MOST), Limit("agent", "tokens", MOST))
    under_way = [await budget.reserve(ANN, ESTIMATE) for _ in range(3)]
    begun = store.asked
    for _ in range(100):
        await call(budget)
    assert store.asked - begun < 10
    async with budget:
        for reservation in under_way:
            await budget.settle(reservation, USED)
    assert await counted(store) == 2 * 103 * USED.total_tokens


async def test_what_is_left_for_a_next_call_is_given_back_soon() -> None:
    store = AskedStore(clock=CLOCK)
    budget = instance(store, per_user(MOST))
    for number in range(1, 4):
        await call(budget)
        given_back = asyncio.Event()
        store.after = given_back.set
        async with asyncio.timeout(seconds(5)):
            await given_back.wait()
        store.after = None
        assert await counted(store) == number * USED.total_tokens


async def test_what_is_left_is_given_back_at_the_end() -> None:
    store = MemoryStore(clock=CLOCK)
    async with instance(store, per_user(MOST)) as budget:
        await call(budget)
        assert await counted(store) > USED.total_tokens
    assert await counted(store) == USED.total_tokens


async def test_of_a_small_budget_nothing_is_set_aside() -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user((SHARE - 1) * ESTIMATE.total_tokens))
    begun = [await budget.reserve(ANN, ESTIMATE) for _ in range(3)]
    for done, reservation in enumerate(begun, 1):
        await budget.settle(reservation, USED)
        spent = done * USED.total_tokens + (3 - done) * ESTIMATE.total_tokens
        assert await counted(store) == spent


async def test_no_more_than_a_small_share_is_set_aside() -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user(MOST))
    begun = [await budget.reserve(ANN, ESTIMATE) for _ in range(64)]
    for done, reservation in enumerate(begun, 1):
        await budget.settle(reservation, USED)
        spent = done * USED.total_tokens + (64 - done) * ESTIMATE.total_tokens
        assert 0 <= await counted(store) - spent <= MOST // SHARE


async def test_many_calls_at_once_set_no_more_aside_than_one() -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user(MOST))
    await call(budget)
    begun = await asyncio.gather(*(budget.reserve(ANN, ESTIMATE) for _ in range(64)))
    under_way = 64 * ESTIMATE.total_tokens
    assert await counted(store) <= under_way + USED.total_tokens + MOST // SHARE
    async with budget:
        await asyncio.gather(*(budget.settle(one, USED) for one in begun))
    assert await counted(store) == 65 * USED.total_tokens


async def test_from_half_of_a_budget_on_the_store_counts_each_call() -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user(1_000))
    await call(budget, used=Usage(prompt_tokens=500))
    await budget.reserve(ANN, ESTIMATE)
    for number in range(1, 20):
        await call(budget)
        assert await counted(store) == 500 + ESTIMATE.total_tokens + number * USED.total_tokens


async def test_budget_is_spent_by_two_instances_to_its_end_and_no_further() -> None:
    store = MemoryStore(clock=CLOCK)
    pair = [instance(store, per_user(1_000)) for _ in range(2)]
    done = 0

    async def spend(number: int) -> None:
        nonlocal done
        budget = pair[number % 2]
        try:
            while True:
                held = await budget.reserve(ANN, TENTH)
                await asyncio.sleep(0)
                await budget.settle(held, TENTH)
                done += TENTH.total_tokens
                assert done <= 1_000
        except BudgetExceeded:
            return

    await asyncio.gather(*map(spend, range(8)))
    assert done == 1_000
    assert await counted(store) == 1_000


async def test_reserve_that_does_not_fit_is_done_without() -> None:
    store = MemoryStore(clock=CLOCK)
    one, other = (instance(store, per_user(10_000)) for _ in range(2))
    await call(one)
    nothing = await one.reserve(ANN, Usage())
    large = await other.reserve(ANN, Usage(prompt_tokens=9_900 - 10))
    # The first one's view is old: it believes that there is room for more than this call.
    small = Usage(prompt_tokens=100)
    await one.settle(await one.reserve(ANN, small), small)
    await other.settle(large, Usage(prompt_tokens=9_890))
    await one.settle(nothing, Usage())
    assert await counted(store) == 10_000


async def test_call_that_used_more_than_was_held_is_charged_at_once() -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user(1_000))
    other = await budget.reserve(ANN, ESTIMATE)
    await call(budget, used=Usage(prompt_tokens=600))
    assert await counted(store) >= 600 + ESTIMATE.total_tokens
    await budget.settle(other, USED)
    assert await counted(store) == 600 + USED.total_tokens


async def test_calls_that_use_more_than_was_held_leave_nothing_set_aside() -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user(MOST))
    begun = [await budget.reserve(ANN, USED) for _ in range(8)]
    async with budget:
        for reservation in begun:
            await budget.settle(reservation, ESTIMATE)
    assert await counted(store) == 8 * ESTIMATE.total_tokens


class GatedStore(MemoryStore):
    """Answers once its gate is open."""

    def __init__(self) -> None:
        super().__init__(clock=CLOCK)
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        self.asked.set()
        await self.gate.wait()
        return await super().count(additions)


@pytest.mark.parametrize("answers_first", [True, False])
async def test_caller_that_leaves_while_the_store_is_asked_holds_nothing(
    answers_first: bool,
) -> None:
    store = GatedStore()
    async with instance(store, per_user(1_000)) as budget:
        reserving = asyncio.ensure_future(budget.reserve(ANN, ESTIMATE))
        await store.asked.wait()
        if answers_first:
            store.gate.set()
        reserving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reserving
        store.gate.set()
        await asyncio.sleep(0)
    assert await counted(store) == 0


async def test_run_goes_on_at_another_instance_with_what_its_log_says() -> None:
    store = MemoryStore(clock=CLOCK)
    limit = Limit("run", "tokens", 1_000)
    first, second = instance(store, limit), instance(store, limit)
    await call(first, used=Usage(prompt_tokens=850))
    with pytest.raises(BudgetExceeded, match="850 tokens of the 1000 tokens of this turn"):
        await first.reserve(ANN, Usage(prompt_tokens=200))
    moved = Spender("ann", "a", "r1", used=Usage(prompt_tokens=850))
    with pytest.raises(BudgetExceeded, match="850 tokens of the 1000 tokens of this turn"):
        await second.reserve(moved, Usage(prompt_tokens=200))
    await call(second, spender=moved)
    await call(second, spender=Spender("ann", "a", "r2"), used=Usage(prompt_tokens=900))
    # Runs leave nothing behind in the store.
    assert await store.sums("budget\t") == {}


async def test_store_is_asked_before_the_next_turn_once_it_has_refused_a_call() -> None:
    store = AskedStore(clock=CLOCK)
    one, other = instance(store, per_user(MOST)), instance(store, per_user(MOST))
    await call(one)
    await call(other, used=Usage(prompt_tokens=MOST))
    asked = store.asked
    await one.admit(ANN)
    assert store.asked == asked, "little was spent when it was last asked, a moment ago"
    with pytest.raises(BudgetExceeded):
        await one.reserve(ANN, Usage(prompt_tokens=MOST // 2))
    with pytest.raises(BudgetExceeded):
        await one.admit(ANN)


async def test_calls_at_once_have_something_set_aside_however_often_the_store_was_asked() -> None:
    store = AskedStore(clock=CLOCK)
    budget = instance(store, per_user(10 * MOST))
    for _ in range(20):
        begun = [await budget.reserve(ANN, ESTIMATE) for _ in range(20)]
        for one in begun:
            await budget.settle(one, ESTIMATE)
    assert store.asked < 4 * 20


async def test_longest_unseen_run_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is forgotten is still in its log; a run's calls under way are counted only here."""
    monkeypatch.setattr(budgets, "MAX_RUNS", 1)
    budget = instance(MemoryStore(clock=CLOCK), Limit("run", "tokens", 250))
    later = Spender("ann", "a", "r2")
    await budget.reserve(ANN, ESTIMATE)
    for _ in range(2):
        await budget.reserve(later, ESTIMATE)
    with pytest.raises(BudgetExceeded):
        await budget.reserve(later, ESTIMATE)


async def test_calls_of_one_run_at_once_share_its_budget() -> None:
    budget = instance(MemoryStore(clock=CLOCK), Limit("run", "tokens", 250))
    held: list[Reservation] = [await budget.reserve(ANN, ESTIMATE) for _ in range(2)]
    with pytest.raises(BudgetExceeded, match="200 tokens of the 250"):
        await budget.reserve(ANN, ESTIMATE)
    await budget.settle(held[0], USED)
    await budget.settle(await budget.reserve(ANN, ESTIMATE), USED)


async def test_soft_share_is_asked_about_by_what_all_have_spent() -> None:
    store = MemoryStore(clock=CLOCK)
    one, other = (instance(store, per_user(MOST), soft=0.2) for _ in range(2))
    assert await call(one) is None
    for _ in range(2):
        await call(other, used=Usage(prompt_tokens=10_000))
    assert await call(one, used=Usage(prompt_tokens=MOST // SHARE)) is not None


async def test_store_that_cannot_be_told_what_was_used_counts_all_of_it() -> None:
    def away() -> None:
        raise StoreUnavailable

    store = AskedStore(clock=CLOCK)
    budget = instance(store, per_user(150))
    held = await budget.reserve(ANN, ESTIMATE)
    store.before = away
    assert await budget.settle(held, USED) is None
    store.before = None
    assert await counted(store) == ESTIMATE.total_tokens


async def test_what_the_store_could_not_be_told_is_charged_with_the_next_call() -> None:
    def away() -> None:
        raise StoreUnavailable

    store = AskedStore(clock=CLOCK)
    budget = instance(store, per_user(1_000))
    held = await budget.reserve(ANN, ESTIMATE)
    store.before = away
    await budget.settle(held, Usage(prompt_tokens=300))
    store.before = None
    await call(budget)
    assert await counted(store) == 300 + USED.total_tokens


async def test_known_budgets_of_an_hour_that_is_over_are_forgotten() -> None:
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    agents = {"a": AgentBudget("a", "m", (Limit("hour", "tokens", 1_000),))}
    budget = StoreBudget(store, clock, agents, UsageLedger(store, clock, 0))
    over_the_hour = await budget.reserve(ANN, ESTIMATE)
    clock.advance(3600)
    await call(budget)
    await budget.settle(over_the_hour, Usage(prompt_tokens=50))
    assert sorted((await store.sums("budget\t")).values()) == [USED.total_tokens, 50]
