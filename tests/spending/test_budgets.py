"""What is set aside of a budget saves asking the store, and spends no more than there is."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence

import pytest

from sk_agents.engine.models import Cost, Usage
from sk_agents.engine.ports import Count, Reservation, Spender
from sk_agents.exceptions import BudgetExceeded, StoreUnavailable
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.spending import budgets
from sk_agents.spending.advances import SHARE, Advance
from sk_agents.spending.budgets import SEEN_SECONDS, AgentBudget, StoreBudget
from sk_agents.spending.limits import HOUR_SECONDS, Limit
from sk_agents.spending.usage import NANO, UsageLedger
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


def instance(
    store: MemoryStore, *limits: Limit, soft: float | None = None, clock: SettableClock = CLOCK
) -> StoreBudget:
    agents = {"a": AgentBudget("a", "m", limits, soft)}
    return StoreBudget(store, clock, agents, UsageLedger(store, clock, 0))


def per_user(most: int) -> Limit:
    return Limit("user", "tokens", most)


async def counted(store: MemoryStore) -> int:
    return sum((await store.sums("budget\t")).values())


def alive(kind: type) -> int:
    """How many there are that something still knows."""
    gc.collect()
    return sum(isinstance(one, kind) for one in gc.get_objects())


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


async def test_what_is_left_stays_while_a_call_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "LINGER_SECONDS", 0)
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user(MOST))
    await call(budget)
    held = await budget.reserve(ANN, Usage(prompt_tokens=50))
    for _ in range(10):
        await asyncio.sleep(0)
    assert await counted(store) == ESTIMATE.total_tokens
    async with budget:
        await budget.settle(held, USED)
    assert await counted(store) == 2 * USED.total_tokens


async def test_budget_that_was_given_back_is_forgotten_when_its_hour_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "LINGER_SECONDS", 0)
    clock = SettableClock()
    budget = instance(MemoryStore(clock=clock), per_user(MOST), clock=clock)
    before = alive(Advance)
    for name in ("bob", "eve", "ann"):
        await call(budget, spender=Spender(name, "a", "r1"))
    for _ in range(10):
        await asyncio.sleep(0)
    clock.advance(HOUR_SECONDS)
    await budget.admit(ANN)
    assert alive(Advance) == before + 1


async def test_agent_without_a_budget_needs_no_store() -> None:
    store = AskedStore(clock=CLOCK)
    budget = instance(store)
    await budget.admit(ANN)
    assert await call(budget) is None
    assert store.asked == 0


async def test_last_unit_that_is_left_is_given_back_too() -> None:
    store = MemoryStore(clock=CLOCK)
    async with instance(store, per_user(MOST)) as budget:
        await call(budget, used=Usage(prompt_tokens=99))
    assert await counted(store) == 99


async def test_of_a_small_budget_nothing_is_set_aside() -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user((SHARE - 1) * ESTIMATE.total_tokens))
    begun = [await budget.reserve(ANN, ESTIMATE) for _ in range(3)]
    assert await counted(store) == 3 * ESTIMATE.total_tokens
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


@pytest.mark.parametrize("one_call", [1, 100])
@pytest.mark.parametrize(("soft", "half"), [(None, MOST // 2), (0.2, MOST // 10)])
@pytest.mark.parametrize("below", [0, 1])
async def test_nothing_is_set_aside_from_half_of_what_may_be_spent_without_a_question_on(
    soft: float | None, half: int, one_call: int, below: int
) -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user(MOST), soft=soft)
    await call(budget, used=Usage(prompt_tokens=half - one_call - below))
    before = await counted(store)
    begun = [await budget.reserve(ANN, Usage(prompt_tokens=one_call)) for _ in range(3)]
    assert (await counted(store) > before + 3 * one_call) == bool(below)
    if not below:
        for done, reservation in enumerate(begun, 1):
            await budget.settle(reservation, Usage())
            assert await counted(store) == before + (3 - done) * one_call


async def test_call_that_costs_nothing_changes_no_counter() -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user(1_000))
    await call(budget, used=Usage(prompt_tokens=600))
    await budget.settle(await budget.reserve(ANN, Usage()), Usage())
    assert await counted(store) == 600


async def test_smallest_call_is_counted() -> None:
    store = MemoryStore(clock=CLOCK)
    await instance(store, per_user(1_000)).reserve(ANN, Usage(prompt_tokens=1))
    assert await counted(store) == 1


async def test_call_alone_takes_no_more_than_it_lacks() -> None:
    store = MemoryStore(clock=CLOCK)
    budget = instance(store, per_user(MOST))
    await call(budget)
    await budget.reserve(ANN, ESTIMATE)
    assert await counted(store) == USED.total_tokens + ESTIMATE.total_tokens


async def test_share_that_is_just_enough_for_a_call_is_set_aside() -> None:
    store = MemoryStore(clock=CLOCK)
    async with instance(store, per_user(SHARE * ESTIMATE.total_tokens)) as budget:
        await call(budget)
        assert await counted(store) == ESTIMATE.total_tokens, "what is left may serve a next call"
    async with instance(store, per_user(SHARE * ESTIMATE.total_tokens)) as budget:
        begun = [await budget.reserve(ANN, ESTIMATE) for _ in range(2)]
        assert await counted(store) == USED.total_tokens + 3 * ESTIMATE.total_tokens
        for reservation in begun:
            await budget.settle(reservation, USED)
    assert await counted(store) == 3 * USED.total_tokens


async def test_what_is_set_aside_goes_back_with_a_call_that_used_too_much() -> None:
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    one, other = (instance(store, per_user(MOST), clock=clock) for _ in range(2))
    await call(one)
    held = await one.reserve(ANN, Usage(prompt_tokens=50))
    await call(other, used=Usage(prompt_tokens=MOST // 2))
    clock.advance(SEEN_SECONDS)
    await one.admit(ANN)  # it learns that half is spent
    await one.settle(held, Usage(prompt_tokens=60))
    assert await counted(store) == MOST // 2 + USED.total_tokens + 60


async def test_instance_with_something_left_of_a_used_up_budget_begins_a_turn() -> None:
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    one, other = (instance(store, per_user(10_000), clock=clock) for _ in range(2))
    await call(one, used=Usage(prompt_tokens=99))
    await other.reserve(ANN, Usage(prompt_tokens=9_900))
    clock.advance(SEEN_SECONDS)
    await one.admit(ANN)
    with pytest.raises(BudgetExceeded):
        await other.admit(ANN)


async def test_store_is_asked_before_a_turn_unless_little_was_spent_a_moment_ago() -> None:
    clock = SettableClock()
    store = AskedStore(clock=clock)
    one, other = (instance(store, per_user(1_000), clock=clock) for _ in range(2))
    seen = []
    for spent in (0, 499, 1):
        if spent:
            await call(other, used=Usage(prompt_tokens=spent))
        before = store.asked
        for wait in (SEEN_SECONDS, 0, SEEN_SECONDS - 1):
            clock.advance(wait)
            await one.admit(ANN)
        seen.append(store.asked - before)
    assert seen == [1, 1, 3]


async def test_usage_is_written_to_the_model_that_the_turn_has_chosen() -> None:
    store = MemoryStore(clock=CLOCK)
    ledger = UsageLedger(store, CLOCK, 90)
    budget = StoreBudget(store, CLOCK, {"a": AgentBudget("a", "usual")}, ledger)
    await call(budget)
    await call(budget, spender=Spender("ann", "a", "r2", model="other"))
    found = await ledger.rows(CLOCK.now().date())
    assert [row.model for row in found] == ["other", "usual"]


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
    """Answers once its gate is open, with its failure if it has one."""

    failure: StoreUnavailable | None = None

    def __init__(self) -> None:
        super().__init__(clock=CLOCK)
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        self.asked.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
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
    await budget.reserve(ANN, Usage(prompt_tokens=250))  # its log has none of the calls under way


async def test_what_a_call_did_not_use_can_be_spent_again_to_the_last_unit() -> None:
    budget = instance(MemoryStore(clock=CLOCK), Limit("run", "tokens", ESTIMATE.total_tokens))
    await call(budget, used=Usage())
    await call(budget, used=ESTIMATE)
    with pytest.raises(BudgetExceeded):
        await budget.reserve(ANN, Usage(prompt_tokens=1))


async def test_of_a_budget_that_was_passed_nothing_is_left() -> None:
    store = MemoryStore(clock=CLOCK)
    async with instance(store, per_user(1_000)) as budget:
        await call(budget, used=Usage(prompt_tokens=1_200))
        report = await budget.report("ann")
    assert [(row.spent, row.left) for row in report.rows] == [(1_200, 0)]


async def test_budgets_of_one_user_and_of_all_are_reported_with_their_ends() -> None:
    clock = SettableClock()
    clock.advance(90 * 60)
    store = MemoryStore(clock=clock)
    limits = (
        Limit("run", "tokens", 9_000),
        Limit("user", "tokens", 1_000),
        Limit("user", "USD", 5 * NANO),
        Limit("user", "tokens", 500, is_own=True),
        Limit("hour", "tokens", 800),
        Limit("agent", "tokens", 2_000, is_own=True),
        Limit("day", "tokens", 3_000),
    )
    used = Usage(prompt_tokens=10, cost=Cost(amount=1.0, currency="USD"))
    async with instance(store, *limits, clock=clock) as budget:
        for spender in (ANN, Spender("bob", "a", "r2")):
            await call(budget, used=used, spender=spender)
        of_ann, of_all = await budget.report("ann"), await budget.report()
    ann: set[tuple[object, ...]] = {
        ("user", "ann", None, "tokens", 10, 990),
        ("user", "ann", None, "USD", 1.0, 4.0),
        ("user", "ann", "a", "tokens", 10, 490),
        ("hour", "ann", None, "tokens", 10, 790),
    }
    others: set[tuple[object, ...]] = {
        *((scope, "bob", *rest) for scope, _, *rest in ann),
        ("user", None, None, "tokens", 0, 1_000),
        ("user", None, None, "USD", 0, 5.0),
        ("user", None, "a", "tokens", 0, 500),
        ("hour", None, None, "tokens", 0, 800),
        ("agent", None, "a", "tokens", 20, 1_980),
        ("day", None, None, "tokens", 20, 2_980),
    }
    found = [
        {(row.scope, row.user_id, row.agent, row.unit, row.spent, row.left) for row in report.rows}
        for report in (of_ann, of_all)
    ]
    assert found == [ann, ann | others]
    assert of_ann.run == of_all.run == ["9000 tokens"]
    assert {(row.scope, row.resets_at) for row in of_all.rows} == {
        ("hour", "2030-01-01T02:00:00+00:00"),
        *((scope, "2030-01-02T00:00:00+00:00") for scope in ("user", "agent", "day")),
    }


async def test_calls_that_have_ended_leave_no_task_behind() -> None:
    store = MemoryStore(clock=CLOCK)
    async with instance(store, per_user(1_000)) as budget:
        await call(budget)
        before = alive(asyncio.Task)
        for _ in range(10):
            await call(budget)
        assert alive(asyncio.Task) <= before + 1


async def test_store_that_fails_while_all_is_given_back_does_not_disturb_the_end() -> None:
    store = GatedStore()
    store.failure = StoreUnavailable()
    async with instance(store, per_user(1_000)) as budget:
        reserving = asyncio.ensure_future(budget.reserve(ANN, ESTIMATE))
        await store.asked.wait()
        reserving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reserving
        asyncio.get_running_loop().call_soon(store.gate.set)
    assert await counted(store) == 0


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
    budget = instance(store, per_user(250))
    held = await budget.reserve(ANN, ESTIMATE)
    store.before = away
    assert await budget.settle(held, USED) is None
    store.before = None
    assert await counted(store) == ESTIMATE.total_tokens
    await call(budget, used=TENTH)
    assert await counted(store) == ESTIMATE.total_tokens + TENTH.total_tokens


@pytest.mark.parametrize("later", [0, HOUR_SECONDS])
async def test_what_the_store_could_not_be_told_is_charged_with_the_next_call(later: float) -> None:
    def away() -> None:
        raise StoreUnavailable

    clock = SettableClock()
    store = AskedStore(clock=clock)
    budget = instance(store, per_user(1_000), clock=clock)
    held = await budget.reserve(ANN, ESTIMATE)
    store.before = away
    await budget.settle(held, Usage(prompt_tokens=300))
    store.before = None
    clock.advance(later)
    await call(budget)
    assert await counted(store) == 300 + USED.total_tokens


async def test_what_the_store_could_not_be_told_is_charged_while_others_are_under_way() -> None:
    def away() -> None:
        raise StoreUnavailable

    store = AskedStore(clock=CLOCK)
    budget = instance(store, per_user(2_000))
    await call(budget, used=Usage(prompt_tokens=1_000))
    held, _ = [await budget.reserve(ANN, ESTIMATE) for _ in range(2)]
    store.before = away
    await budget.settle(held, Usage(prompt_tokens=300))
    store.before = None
    await budget.reserve(ANN, ESTIMATE)
    assert await counted(store) == 1_000 + 300 + 2 * ESTIMATE.total_tokens


async def test_what_a_caller_that_leaves_has_used_is_counted_before_the_end() -> None:
    store = GatedStore()
    store.gate.set()
    async with instance(store, per_user(1_000)) as budget:
        held = await budget.reserve(ANN, ESTIMATE)
        store.gate.clear()
        store.asked.clear()
        settling = asyncio.ensure_future(budget.settle(held, USED))
        await store.asked.wait()
        settling.cancel()
        asyncio.get_running_loop().call_soon(store.gate.set)
    assert await counted(store) == USED.total_tokens


async def test_store_that_fails_after_the_caller_has_left_is_no_unhandled_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = GatedStore()
    store.failure = StoreUnavailable()
    budget = instance(store, per_user(1_000))
    reserving = asyncio.ensure_future(budget.reserve(ANN, ESTIMATE))
    await store.asked.wait()
    reserving.cancel()
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await reserving
    del reserving
    for _ in range(10):
        await asyncio.sleep(0)
    gc.collect()
    assert [one for one in caplog.records if one.name == "asyncio"] == []


def test_end_of_the_process_while_the_store_is_asked_is_no_unhandled_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        store = GatedStore()
        reserving = asyncio.ensure_future(instance(store, per_user(1_000)).reserve(ANN, ESTIMATE))
        await store.asked.wait()
        reserving.cancel()

    asyncio.run(run())
    gc.collect()
    assert [one for one in caplog.records if one.name == "asyncio"] == []


@pytest.mark.parametrize("most", [1, 1_000])
async def test_call_that_costs_nothing_is_no_reason_to_ask(most: int) -> None:
    budget = instance(MemoryStore(clock=CLOCK), per_user(most), soft=1.0)
    assert await budget.settle(await budget.reserve(ANN, Usage()), Usage()) is None


async def test_budgets_of_no_more_users_are_known_than_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "MAX_SPENDERS", 2)
    budget = instance(MemoryStore(clock=CLOCK), per_user(1_000))
    before = alive(Advance)
    for number in range(10):
        await call(budget, spender=Spender(f"user-{number}", "a", "r1"))
    assert alive(Advance) <= before + 3


@pytest.mark.parametrize(
    ("spent", "wanted", "said"),
    [
        (
            10,
            100,
            "10 tokens of the 100 tokens .* are spent, and the next step may take 100 tokens",
        ),
        (100, 100, "100 tokens of the 100 tokens of this turn are spent[.]$"),
        (0, 101, "too small: one call of this model may take 101 tokens, more than all of the 100"),
    ],
)
async def test_refusal_says_whether_a_smaller_step_or_only_a_larger_budget_would_help(
    spent: int, wanted: int, said: str
) -> None:
    budget = instance(MemoryStore(clock=CLOCK), Limit("run", "tokens", 100))
    await call(budget, used=Usage(prompt_tokens=spent))
    with pytest.raises(BudgetExceeded, match=said):
        await budget.reserve(ANN, Usage(prompt_tokens=wanted))


@pytest.mark.parametrize("microsecond", [0, 500_000])
async def test_refused_caller_that_comes_back_when_it_is_told_is_served(microsecond: int) -> None:
    clock = SettableClock()
    clock.set_wall(clock.now().replace(hour=23, minute=59, microsecond=microsecond))
    budget = instance(MemoryStore(clock=clock), per_user(100), clock=clock)
    await call(budget, used=ESTIMATE)
    with pytest.raises(BudgetExceeded) as refused:
        await budget.admit(ANN)
    assert refused.value.retry_after <= 61
    clock.advance(refused.value.retry_after)
    await budget.admit(ANN)


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
