"""Budgets: reserved before the model is called, settled after, asked about when nearly used up."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from sk_agents.config.amounts import Amounts, read_amounts
from sk_agents.engine.agent import RunLimits
from sk_agents.engine.events import ApprovalRequested, ToolProposed
from sk_agents.engine.models import Price, RunStatus, Usage
from sk_agents.engine.ports import Budget, Clock, Reservation, Spender, Store
from sk_agents.engine.turns import CallRequested, TextDelta, ToolContext, ToolResult
from sk_agents.exceptions import (
    BudgetExceeded,
    ModelError,
    ModelInterrupted,
    StoreBroken,
    StoreBusy,
)
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.spending.allowances import Allowance
from sk_agents.spending.budgets import AgentBudget, StoreBudget
from sk_agents.spending.limits import Limit, Scope, limits_of, strictest
from sk_agents.spending.usage import UsageLedger
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import FakeTools, tool
from tests.engine.kit import BOUND, UNSWEPT, Talk, is_asked_anew, talking

MakeBudget = Callable[[Store, Clock], Budget]
TEN = Usage(prompt_tokens=6, completion_tokens=4)
LOOK = ("Files-look", {"path": "x"})


def budget(soft: float | None = None, calls: int | None = None, **amounts: str) -> MakeBudget:
    """Of the agent `a`: amounts by their scope."""

    def make(store: Store, clock: Clock) -> Budget:
        read: list[Limit] = []
        for scope, text in amounts.items():
            read += limits_of(cast("Scope", scope), read_amounts(text))
        allowance = None
        if calls is not None:
            allowance = Allowance(store, clock, name="c", what="calls", most=calls, seconds=3600)
        agents = {"a": AgentBudget("a", "m", strictest(read), soft)}
        return StoreBudget(store, clock, agents, UsageLedger(store, clock, 90), allowance)

    return make


def options(**more: Any) -> dict[str, Any]:
    # The prompt of a short turn has about 20 tokens by our count.
    return {"max_tokens": 100, "clock": SettableClock(), **more}


async def spent(talk: Talk) -> dict[str, int]:
    sums = await talk.store.sums("budget\t")
    return {key.split("\t")[1]: total for key, total in sums.items()}


async def test_turn_is_charged_what_the_model_has_counted(tmp_path: Path) -> None:
    both = budget(run="1000 tokens", user="1000 tokens", agent="1 USD", day="1000 tokens")
    price = Price(100.0, 1000.0, "USD")
    script = [calls(LOOK, usage=TEN), says("done", usage=TEN)]
    async with talking(tmp_path, script=script, budget=both, price=price, **options()) as talk:
        run = await talk.ask()
        assert run.status is RunStatus.COMPLETED
        cost = round(2 * (6 * 100 + 4 * 1000) * 1000)  # billionths of a dollar
        assert await spent(talk) == {"user": 20, "agent": cost, "day": 20}


async def test_tool_that_asks_a_model_is_held_to_the_budget_and_charged(tmp_path: Path) -> None:
    async def think(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        assert context.reserve is not None
        most = Usage(prompt_tokens=500, completion_tokens=int(arguments["text"]))
        settle = await context.reserve(most)
        await settle(TEN)
        return ToolResult("thought", usage=TEN)

    script = [
        calls(("Mind-think", {"text": "100"}), usage=TEN),
        calls(("Mind-think", {"text": "900"}), usage=TEN),
        says("done", usage=TEN),
    ]
    tools = FakeTools(tool("Mind-think", think))
    run_budget = budget(run="1000 tokens", user="5000 tokens")
    async with talking(
        tmp_path, script=script, tools=tools, budget=run_budget, **options()
    ) as talk:
        run = await talk.ask()
        assert run.status is RunStatus.COMPLETED
        first, second = await talk.results("r1")
        assert first == "thought"
        assert second is not None and "budget is" in second
        assert await spent(talk) == {"user": 40}
        assert run.usage.total_tokens == 40


async def test_turn_that_does_not_fit_ends_before_the_model_is_called(tmp_path: Path) -> None:
    script = [says("never")]
    async with talking(tmp_path, script=script, budget=budget(run="50 tokens"), **options()) as t:
        run = await t.ask()
        assert run.failure is not None
        assert (run.status, run.failure.code) == (RunStatus.FAILED, "budget_exceeded")
        # Waiting would not help: it would not fit tomorrow either.
        assert "The budget is too small: one call of this model may take" in run.failure.message
        assert "more than all of the 50 tokens of this turn" in run.failure.message
        assert t.prompts == []
        assert await spent(t) == {}


async def test_turn_that_uses_up_its_budget_keeps_what_it_did(tmp_path: Path) -> None:
    large = Usage(prompt_tokens=900, completion_tokens=90)
    script = [calls(LOOK, usage=large), says("never")]
    async with talking(tmp_path, script=script, budget=budget(run="1000 tokens"), **options()) as t:
        run = await t.ask()
        assert run.failure is not None
        assert run.failure.code == "budget_exceeded"
        assert run.usage.total_tokens == 990
        assert "The budget is used up" in run.failure.message
        assert "the next step may take" in run.failure.message
        assert [result is not None for result in await t.results("r1")] == [True]
        # The conversation goes on, with a budget of the next turn's own.
        assert len(t.prompts) == 1


async def test_used_up_budget_of_a_day_refuses_new_turns_until_the_next(tmp_path: Path) -> None:
    clock = SettableClock()
    clock.set_wall(clock.now().replace(hour=23, minute=59))
    script = [says("one", usage=Usage(prompt_tokens=500, completion_tokens=500)), says("two")]
    day = budget(user="1000 tokens")
    async with talking(tmp_path, script=script, budget=day, **options(clock=clock)) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        with pytest.raises(BudgetExceeded) as refused:
            await talk.ask()
        assert 0 < refused.value.retry_after <= 61
        assert "r2" not in {event.run_id for event in await talk.log()}
        other = await talk.ask(user_id="bob", thread="bobs")
        assert other.status is RunStatus.COMPLETED
        clock.advance(61)
        assert (await talk.ask()).failure is not None  # the script has ended: the model was asked


async def test_reply_that_is_repeated_is_charged_once(tmp_path: Path) -> None:
    script = [[TextDelta("half"), ModelInterrupted()], says("whole", usage=TEN)]
    async with talking(tmp_path, script=script, budget=budget(day="900 tokens"), **options()) as t:
        assert (await t.ask()).status is RunStatus.COMPLETED
        assert await spent(t) == {"day": 10}


async def test_reply_that_breaks_off_in_its_calls_costs_about_what_arrived(tmp_path: Path) -> None:
    def half(size: int) -> list[Any]:
        return [TextDelta("x" * 40), CallRequested("1", "Files-look", "y" * size)]

    script = [[*half(360), ModelInterrupted()], [*half(360), ModelInterrupted()]]
    async with talking(tmp_path, script=script, budget=budget(day="900 tokens"), **options()) as t:
        assert (await t.ask()).status is RunStatus.FAILED
        total = (await spent(t))["day"]
        # The last try, with its prompt of about 20 tokens, and a quarter of the 400 bytes.
        assert 110 < total < 150


async def test_model_that_did_not_answer_costs_nothing(tmp_path: Path) -> None:
    script = [ModelError("away")]
    async with talking(tmp_path, script=script, budget=budget(day="900 tokens"), **options()) as t:
        assert (await t.ask()).status is RunStatus.FAILED
        assert await spent(t) == {"day": 0}


async def test_reply_that_is_cancelled_costs_about_what_arrived(tmp_path: Path) -> None:
    gate = asyncio.Event()
    script = [[TextDelta("x" * 400), gate, *says("never")]]
    async with talking(tmp_path, script=script, budget=budget(day="900 tokens"), **options()) as t:
        accepted = await t.say()
        async with asyncio.timeout(BOUND):
            async for batch in t.engine.watch(accepted.thread_id, run_id=accepted.run_id):
                if any("xxx" in str(item) for item in batch):
                    await t.cancel(accepted.run_id)
        total = (await spent(t))["day"]
        assert 100 < total < 150


async def test_nearly_used_up_budget_asks_once_before_tools_are_used(tmp_path: Path) -> None:
    script = [
        calls(LOOK, LOOK, usage=Usage(prompt_tokens=480, completion_tokens=20)),
        calls(LOOK, usage=TEN),
        says("done", usage=TEN),
    ]
    soft = budget(soft=0.5, run="1000 tokens")
    async with talking(tmp_path, script=script, budget=soft, **options(max_tokens=20)) as talk:
        run = await talk.ask()
        assert run.status is RunStatus.WAITING
        (approval_id,) = await talk.approvals("r1")
        log = await talk.log()
        (asked,) = [event for event in log if isinstance(event, ApprovalRequested)]
        assert asked.shown["budget"] == (
            "500 tokens of the 1000 tokens of this turn are spent. May this turn go on?"
        )
        assert [event.budget is not None for event in log if isinstance(event, ToolProposed)] == [
            True,
            False,
        ]
        await talk.decide(approval_id)
        run = await talk.ended("r1")
        assert (run.status, run.usage.total_tokens) == (RunStatus.COMPLETED, 520)


async def test_rejected_question_about_the_budget_runs_no_tool(tmp_path: Path) -> None:
    script = [
        calls(LOOK, usage=Usage(prompt_tokens=500)),
        calls(LOOK, usage=TEN),
        says("as far as I know", usage=TEN),
    ]
    soft = budget(soft=0.5, run="1000 tokens")
    async with talking(tmp_path, script=script, budget=soft, **options(max_tokens=20)) as talk:
        await talk.ask()
        (first,) = await talk.approvals("r1")
        await talk.decide(first, approved=False)
        await talk.until(is_asked_anew(first))
        await talk.decide(*await talk.approvals("r1"), approved=False)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert all("did not run" in str(result) for result in await talk.results("r1"))


async def test_nearly_used_up_budget_asks_nothing_where_no_person_is(tmp_path: Path) -> None:
    script = [calls(LOOK, usage=Usage(prompt_tokens=90)), says("done", usage=TEN)]
    soft = budget(soft=0.5, run="170 tokens")
    alone = options(max_tokens=20, is_attended=False)
    async with talking(tmp_path, script=script, budget=soft, **alone) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED


async def test_calls_past_the_limit_of_a_turn_are_answered_and_not_run(tmp_path: Path) -> None:
    script = [calls(LOOK, LOOK), calls(LOOK, LOOK), says("done")]
    limits = RunLimits(tool_calls=3)
    async with talking(tmp_path, script=script, limits=limits) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        results = await talk.results("r1")
        assert ["as many calls as it may: 3" in str(result) for result in results] == [
            *(False, False, False),
            True,
        ]


async def test_calls_past_the_limit_of_an_hour_are_answered_and_not_run(tmp_path: Path) -> None:
    clock = SettableClock()
    script = [calls(LOOK, LOOK), says("a"), calls(LOOK, LOOK), says("b"), calls(LOOK), says("c")]
    hour = budget(calls=3)
    # The limit of a turn is far away, and is not what the model is told of.
    limits = RunLimits(tool_calls=9)
    async with talking(tmp_path, script=script, budget=hour, clock=clock, limits=limits) as talk:
        for _ in range(2):
            await talk.ask()
        refused = ["in this hour" in str(one) for one in await talk.results("r2")]
        assert refused == [False, True]
        clock.advance(timedelta(hours=1).total_seconds())
        await talk.ask()
        assert ["in this hour" in str(one) for one in await talk.results("r3")] == [False]


async def test_store_that_is_busy_for_a_while_fails_no_turn(tmp_path: Path) -> None:
    refusals = [StoreBusy(), StoreBusy()]

    class BusyBudget(StoreBudget):
        async def reserve(self, spender: Spender, estimate: Usage) -> Reservation:
            if refusals:
                raise refusals.pop()
            return await super().reserve(spender, estimate)

    def make(store: Store, clock: Clock) -> Budget:
        return BusyBudget(store, clock, {}, UsageLedger(store, clock, 90))

    async with talking(tmp_path, script=[says("done", usage=TEN)], budget=make, **options()) as t:
        assert (await t.ask()).status is RunStatus.COMPLETED
        assert refusals == []


async def test_turn_does_not_wait_for_a_store_that_is_broken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class BrokenBudget(StoreBudget):
        async def reserve(self, spender: Spender, estimate: Usage) -> Reservation:
            raise StoreBroken

    def make(store: Store, clock: Clock) -> Budget:
        return BrokenBudget(store, clock, {}, UsageLedger(store, clock, 90))

    async with talking(MemoryStore(), budget=make, lease_ttl=UNSWEPT) as talk:
        await talk.say()
        async with asyncio.timeout(BOUND):
            while talk.engine.parts.drivers.active:  # noqa: ASYNC110  # an end is no event here
                await asyncio.sleep(0)
    dropped = [one for one in caplog.records if one.message == "run dropped"]
    assert [getattr(one, "error", "") for one in dropped] == ["StoreBroken"]


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("0.50 USD", Amounts(0.5, "USD")),
        ("100000 tokens", Amounts(tokens=100000)),
        ("5 EUR, 7 tokens", Amounts(5.0, "EUR", 7)),
        ("7 tokens,5 EUR", Amounts(5.0, "EUR", 7)),
    ],
)
def test_amounts_are_read_as_people_write_them(text: str, amounts: Amounts) -> None:
    assert read_amounts(text) == amounts


@pytest.mark.parametrize(
    "text", ["", "5", "USD", "5 usd", "-5 USD", "0 USD", "1.5 tokens", "5 USD, 6 EUR", "inf USD"]
)
def test_amounts_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be like"):
        read_amounts(text)
