"""Budgets of money and tokens: reserved before a model is called, settled after.

All instances count together in the store, in one step for all budgets of a call, so that no two
calls can take the same rest. A call that uses more than was reserved for it is charged in full:
what a budget allows is passed by at most one call of each run that was under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Literal

from sk_agents.config.amounts import Amounts
from sk_agents.engine.models import Usage
from sk_agents.engine.ports import Clock, Count, Reservation, Spender, Store
from sk_agents.exceptions import BudgetExceeded, CounterFull, TealError
from sk_agents.spending.allowances import Allowance
from sk_agents.spending.usage import DAY_SECONDS, NANO, UsageLedger, nano
from sk_agents.wire.views import BudgetReport, BudgetRow

logger = logging.getLogger(__name__)

Scope = Literal["run", "user", "agent", "day", "hour"]
TOKENS = "tokens"
HOUR_SECONDS = 3600.0
# A run may wait for a person; a budget of one run is remembered for so long after its first call.
RUN_SECONDS = 30 * DAY_SECONDS
SETTLE_SECONDS = 10.0
SEEN_SECONDS = 10.0
MAX_SEEN = 10_000
_OF_USERS = ("user", "hour")
_WHOSE: Mapping[Scope, str] = {
    "run": "of this turn",
    "user": "you have for a day",
    "agent": "this agent has for a day",
    "day": "of this server for a day",
    "hour": "you have for an hour",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """`unit` is `tokens` or a currency, `most` counts tokens or billionths of money.

    `is_own`: it is in the agent's own file, and counts what is spent on that agent alone.
    """

    scope: Scope
    unit: str
    most: int
    is_own: bool = False

    @property
    def place(self) -> tuple[Scope, str, bool]:
        """Limits of one place count the same."""
        return self.scope, self.unit, self.is_own and self.scope == "user"

    def key(self, spender: Spender, agent: str, now: datetime) -> str:
        when = "" if self.scope == "run" else now.strftime("%Y-%m-%d")
        if self.scope == "hour":
            when = now.strftime("%Y-%m-%dT%H")
        whose: Sequence[str] = {
            "run": [spender.run_id],
            "user": [spender.user_id, *([agent] if self.is_own else [])],
            "agent": [agent],
            "day": [],
            "hour": [spender.user_id],
        }[self.scope]
        return "\t".join(("budget", self.scope, when, self.unit, *whose))

    @property
    def ttl(self) -> float:
        if self.scope == "run":
            return RUN_SECONDS
        return 2 * (HOUR_SECONDS if self.scope == "hour" else DAY_SECONDS)

    def amount(self, usage: Usage) -> int:
        if self.unit == TOKENS:
            return usage.total_tokens
        is_priced = usage.cost is not None and usage.cost.currency == self.unit
        return nano(usage.cost) if is_priced else 0

    def resets_at(self, now: datetime) -> datetime:
        """When it counts from nothing again. A run has but one budget; it is told the next day."""
        if self.scope == "hour":
            return now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        return datetime.combine(now.date() + timedelta(days=1), time(), UTC)

    def in_units(self, amount: int) -> float:
        return amount if self.unit == TOKENS else amount / NANO

    def shown(self, amount: int) -> str:
        if self.unit == TOKENS:
            return f"{amount} tokens"
        return f"{amount / NANO:.4f}".rstrip("0").rstrip(".") + f" {self.unit}"


def limits_of(scope: Scope, amounts: Amounts | None, *, is_own: bool = False) -> list[Limit]:
    if amounts is None:
        return []
    limits = []
    if amounts.cost is not None and amounts.currency is not None:
        limits.append(Limit(scope, amounts.currency, round(amounts.cost * NANO), is_own))
    if amounts.tokens is not None:
        limits.append(Limit(scope, TOKENS, amounts.tokens, is_own))
    return limits


def strictest(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """One limit a place: two that count the same must not count twice."""
    found: dict[tuple[Scope, str, bool], Limit] = {}
    for limit in limits:
        known = found.setdefault(limit.place, limit)
        if limit.most < known.most:
            found[limit.place] = limit
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """Of one agent: its `label` and `model` stand in the usage; from `soft`, a share of a limit,
    a person is asked."""

    label: str
    model: str
    limits: tuple[Limit, ...] = ()
    soft: float | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    """What was reserved: the limits with their keys and amounts."""

    limits: tuple[tuple[Limit, str, int], ...]


def _whose(key: str) -> tuple[str, ...]:
    """What follows the scope, the period and the unit: a user, an agent, or a user's agent."""
    return tuple(key.split("\t")[4:])


def _row(limit: Limit, key: str, spent: int, now: datetime) -> BudgetRow:
    assert limit.scope != "run"
    named = _whose(key)
    is_of_user = limit.scope in _OF_USERS
    return BudgetRow(
        scope=limit.scope,
        user_id=(named[0] or None) if is_of_user else None,
        agent=(named[1] if len(named) > 1 else None) if is_of_user else next(iter(named), None),
        unit=limit.unit,
        spent=limit.in_units(spent),
        most=limit.in_units(limit.most),
        left=limit.in_units(max(0, limit.most - spent)),
        resets_at=limit.resets_at(now).isoformat(),
    )


class StoreBudget:
    """The engine's port `Budget`, over one store that all instances share."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        agents: Mapping[str, AgentBudget],
        ledger: UsageLedger,
        calls: Allowance | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._agents = agents
        self._ledger = ledger
        self._calls = calls
        self._settling: set[asyncio.Task[str | None]] = set()
        # What this instance has last seen of each budget: how much was spent, and when.
        self._seen: dict[str, tuple[int, float]] = {}

    async def admit(self, spender: Spender) -> None:
        agent = self._agent(spender)
        if not agent.limits:
            return
        limits = self._keys(spender, agent, [one for one in agent.limits if one.scope != "run"])
        if all(self._has_much_left(limit, key) for limit, key in limits):
            return
        sums = await self._store.count([Count(key, 0, limit.ttl) for limit, key in limits])
        self._remember([key for _, key in limits], sums)
        for (limit, _), spent in zip(limits, sums, strict=True):
            if spent >= limit.most:
                raise self._exceeded(limit, spent)

    async def reserve(self, spender: Spender, estimate: Usage) -> Reservation:
        agent = self._agent(spender)
        if not agent.limits:
            return Reservation(spender)
        held = tuple(
            (limit, key, limit.amount(estimate))
            for limit, key in self._keys(spender, agent, agent.limits)
        )
        additions = [Count(key, amount, limit.ttl, limit.most) for limit, key, amount in held]
        try:
            sums = await self._store.count(additions)
        except CounterFull as full:
            limit, _, amount = next(one for one in held if one[1] == full.key)
            raise self._exceeded(limit, full.sum, amount) from None
        self._remember([key for _, key, _ in held], sums)
        return Reservation(spender, _Held(held))

    async def settle(self, reservation: Reservation, usage: Usage) -> str | None:
        spender = reservation.spender
        if usage.total_tokens:
            agent = self._agent(spender)
            self._ledger.add(spender.user_id, agent.label, spender.model or agent.model, usage)
        if not isinstance(reservation.held, _Held):
            return None
        # To its end, whatever becomes of the caller: else the reservation stays.
        task = asyncio.get_running_loop().create_task(self._settle(reservation, usage))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        return await asyncio.shield(task)

    async def admit_calls(self, spender: Spender, wanted: int) -> int:
        return wanted if self._calls is None else await self._calls.take(spender.user_id, wanted)

    async def report(self, user_id: str | None = None) -> BudgetReport:
        """What is left of this user's budgets, or of everyone's, of all agents' and the server's.

        Among everyone's is one row without a user for all who have spent nothing yet.

        Raises:
            StoreError: try again.
        """
        now = self._clock.now().astimezone(UTC)
        rows: dict[str, BudgetRow] = {}
        of_run: set[str] = set()
        # An agent has a name for each API, and one budget.
        for agent in {agent.label: agent for agent in self._agents.values()}.values():
            for limit in agent.limits:
                if limit.scope == "run":
                    of_run.add(limit.shown(limit.most))
                elif user_id is None or limit.scope in _OF_USERS:
                    for key, spent in (await self._spent(limit, agent.label, user_id, now)).items():
                        rows[key] = _row(limit, key, spent, now)
        return BudgetReport(
            at=now.isoformat(), rows=[rows[key] for key in sorted(rows)], run=sorted(of_run)
        )

    async def _spent(
        self, limit: Limit, agent: str, user_id: str | None, now: datetime
    ) -> Mapping[str, int]:
        """By the counter's key: one; or one a user who has spent, and one of no user for others."""
        key = limit.key(Spender(user_id or "", agent, ""), agent, now)
        if user_id is None and limit.scope in _OF_USERS:
            whose = (agent,) if limit.is_own and limit.scope == "user" else ()
            sums = await self._store.sums("\t".join(key.split("\t")[:4]) + "\t")
            of_some = {found: spent for found, spent in sums.items() if _whose(found)[1:] == whose}
            return {key: 0, **of_some}
        return {key: (await self._store.count([Count(key, 0, limit.ttl)]))[0]}

    async def _settle(self, reservation: Reservation, usage: Usage) -> str | None:
        assert isinstance(reservation.held, _Held)
        held = reservation.held.limits
        changes = [
            Count(key, limit.amount(usage) - amount, limit.ttl) for limit, key, amount in held
        ]
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                sums = await self._store.count(changes)
        except (TealError, TimeoutError) as error:
            logger.warning(
                "a reservation was not settled, and is held until its budget's time is over",
                extra={"run_id": reservation.spender.run_id, "error": type(error).__name__},
            )
            return None
        self._remember([key for _, key, _ in held], sums)
        soft = self._agent(reservation.spender).soft
        for (limit, _, _), spent in zip(held, sums, strict=True):
            if soft is not None and spent >= soft * limit.most:
                return (
                    f"{limit.shown(spent)} of the {limit.shown(limit.most)} "
                    f"{_WHOSE[limit.scope]} are spent. May this turn go on?"
                )
        return None

    def _remember(self, keys: Sequence[str], sums: Sequence[int]) -> None:
        now = self._clock.monotonic()
        self._seen.update(zip(keys, ((spent, now) for spent in sums), strict=True))
        while len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]

    def _has_much_left(self, limit: Limit, key: str) -> bool:
        """Less than half of it was spent a moment ago, so that the store need not be asked before
        a run begins. Before each call of the model it is."""
        spent, at = self._seen.get(key, (limit.most, 0.0))
        return 2 * spent < limit.most and self._clock.monotonic() - at < SEEN_SECONDS

    def _agent(self, spender: Spender) -> AgentBudget:
        return self._agents.get(spender.agent) or AgentBudget(spender.agent, "")

    def _keys(
        self, spender: Spender, agent: AgentBudget, limits: Sequence[Limit]
    ) -> list[tuple[Limit, str]]:
        now = self._clock.now()
        return [(limit, limit.key(spender, agent.label, now)) for limit in limits]

    def _exceeded(self, limit: Limit, spent: int, wanted: int = 0) -> BudgetExceeded:
        most, whose = limit.shown(limit.most), _WHOSE[limit.scope]
        text = f"The budget is used up: {limit.shown(spent)} of the {most} {whose} are spent"
        if wanted > limit.most:
            text = (
                f"The budget is too small: one call of this model may take {limit.shown(wanted)}, "
                f"more than all of the {most} {whose}, so that no call can be made. Raise the "
                "budget, or bound the answer with the agent's max_tokens"
            )
        elif spent < limit.most:
            text += f", and the next step may take {limit.shown(wanted)}"
        return BudgetExceeded(f"{text}.", retry_after=self._seconds_left(limit))

    def _seconds_left(self, limit: Limit) -> int:
        now = self._clock.now().astimezone(UTC)
        return 1 + int((limit.resets_at(now) - now).total_seconds())
