"""Budgets of money and tokens: reserved before a model is called, settled after.

All instances count together in the store, so that no two calls can take the same rest; what an
instance has counted there and not spent is its `Advance`. A call that uses more than was reserved
for it is charged in full: what a budget allows is passed by at most one call of each run that was
under way. The budget of one run is counted by the instance that drives it, from the run's log on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

from sk_agents.engine.models import EPOCH, Usage
from sk_agents.engine.ports import Clock, Count, Reservation, Spender, Store
from sk_agents.exceptions import BudgetExceeded, CounterFull, TealError
from sk_agents.spending.advances import Advance
from sk_agents.spending.allowances import Allowance
from sk_agents.spending.limits import OF_USERS, Limit
from sk_agents.spending.usage import UsageLedger
from sk_agents.wire.views import BudgetReport, BudgetRow

logger = logging.getLogger(__name__)

T = TypeVar("T")

HOUR = timedelta(hours=1)
SETTLE_SECONDS = 10.0
SEEN_SECONDS = 10.0
# How long something is left for a next call.
LINGER_SECONDS = 0.25
MAX_RUNS = 10_000
# Of users and agents, and of what is known of their budgets.
MAX_SPENDERS = 10_000


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """Of one agent: its `label` and `model` stand in the usage; from `soft`, a share of a limit,
    a person is asked."""

    label: str
    model: str
    limits: tuple[Limit, ...] = ()
    soft: float | None = None


@dataclass(frozen=True, slots=True)
class _Limits:
    """An agent's, for one user at this time: those of a run, and what is set aside of others."""

    of_run: Sequence[Limit]
    advances: Sequence[Advance]


@dataclass(frozen=True, slots=True)
class _Held:
    """What was reserved: of each limit, what counts of the estimate."""

    limits: _Limits
    estimate: Usage


class RunTotals:
    """What runs have used: at least what their logs say, and what is under way here."""

    def __init__(self) -> None:
        self._totals: OrderedDict[tuple[str, str], int] = OrderedDict()

    def of(self, spender: Spender, limit: Limit) -> int:
        counted = self._totals.get((spender.run_id, limit.unit), 0)
        return max(counted, limit.amount(spender.used))

    def add(self, spender: Spender, limit: Limit, amount: int) -> None:
        self._totals[spender.run_id, limit.unit] = max(0, self.of(spender, limit) + amount)
        if len(self._totals) > MAX_RUNS:
            self._totals.popitem(last=False)


def _whose(key: str) -> tuple[str, ...]:
    """What follows the scope, the period and the unit: a user, an agent, or a user's agent."""
    return tuple(key.split("\t")[4:])


def _row(limit: Limit, key: str, spent: int, now: datetime) -> BudgetRow:
    assert limit.scope != "run"
    named = _whose(key)
    is_of_user = limit.scope in OF_USERS
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
    """The engine's port `Budget`, over one store that all instances share.

    `async with` it: entered after the store and left before it.
    """

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
        self._runs = RunTotals()
        # By their counter and what it may reach.
        self._advances: dict[tuple[str, int], Advance] = {}
        # By user and agent, in this hour.
        self._limits: dict[tuple[str, str], _Limits] = {}
        self._hour_ends_at = EPOCH
        self._counting: set[asyncio.Task[Any]] = set()
        # Advances of which no call is under way, until what is left of them is given back.
        self._idle: set[Advance] = set()
        self._returning: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._returning is not None:
            self._returning.cancel()
        self._return_idle()
        await asyncio.gather(*self._counting, return_exceptions=True)

    async def admit(self, spender: Spender) -> None:
        limits = self._limits_of(spender, self._agent(spender))
        if limits is None:
            return
        since = self._clock.monotonic() - SEEN_SECONDS
        asked = [one for one in limits.advances if not _has_much_left(one, since)]
        if not asked:
            return
        sums = await self._store.count([advance.count(0) for advance in asked])
        self._learn(asked, sums)
        for advance, spent in zip(asked, sums, strict=True):
            if spent >= advance.limit.most and advance.left <= 0:
                raise self._exceeded(advance.limit, spent)

    async def reserve(self, spender: Spender, estimate: Usage) -> Reservation:
        agent = self._agent(spender)
        limits = self._limits_of(spender, agent)
        if limits is None:
            return Reservation(spender)
        held = _Held(limits, estimate)
        for limit in limits.of_run:
            amount, spent = limit.amount(estimate), self._runs.of(spender, limit)
            if spent + amount > limit.most:
                raise self._exceeded(limit, spent, amount)
        missing = self._lend(spender, held)
        if missing:
            try:
                await self._to_its_end(self._fetch(missing, agent.soft or 1.0))
            except BaseException as error:
                self._tell_later(self._take_back(spender, agent, held, Usage()))
                if isinstance(error, CounterFull):
                    raise self._refusal(held, error) from None
                raise
        return Reservation(spender, held)

    async def settle(self, reservation: Reservation, usage: Usage) -> str | None:
        spender = reservation.spender
        agent = self._agent(spender)
        if usage.total_tokens:
            self._ledger.add(spender.user_id, agent.label, spender.model or agent.model, usage)
        held = reservation.held
        if not isinstance(held, _Held):
            return None
        changes = self._take_back(spender, agent, held, usage)
        if changes:
            # To its end, whatever becomes of the caller: else it stays reserved.
            await self._to_its_end(self._tell(changes))
        return self._question(spender, held.limits, agent.soft) if agent.soft else None

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
                elif user_id is None or limit.scope in OF_USERS:
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
        if user_id is None and limit.scope in OF_USERS:
            whose = (agent,) if limit.is_own and limit.scope == "user" else ()
            sums = await self._store.sums("\t".join(key.split("\t")[:4]) + "\t")
            of_some = {found: spent for found, spent in sums.items() if _whose(found)[1:] == whose}
            return {key: 0, **of_some}
        return {key: (await self._store.count([Count(key, 0, limit.ttl)]))[0]}

    def _lend(self, spender: Spender, held: _Held) -> list[tuple[Advance, int]]:
        """What is missing of each advance."""
        for limit in held.limits.of_run:
            self._runs.add(spender, limit, limit.amount(held.estimate))
        return [
            (advance, missing)
            for advance in held.limits.advances
            if (missing := advance.lend(advance.limit.amount(held.estimate)))
        ]

    def _take_back(
        self, spender: Spender, agent: AgentBudget, held: _Held, usage: Usage
    ) -> list[tuple[Advance, int]]:
        """What the store has to be told about."""
        for limit in held.limits.of_run:
            self._runs.add(spender, limit, limit.amount(usage) - limit.amount(held.estimate))
        soft, changes = agent.soft or 1.0, []
        for advance in held.limits.advances:
            limit = advance.limit
            amount, spent = limit.amount(held.estimate), limit.amount(usage)
            if change := advance.take_back(amount, spent, soft):
                changes.append((advance, change))
            self._return_soon(advance)
        return changes

    def _return_soon(self, advance: Advance) -> None:
        """What is left of it, unless a call needs it before."""
        if advance.lent or advance.left <= 0:
            return
        self._idle.add(advance)
        if self._returning is None:
            loop = asyncio.get_running_loop()
            self._returning = loop.call_later(LINGER_SECONDS, self._return_idle)

    def _return_idle(self) -> None:
        self._returning, idle = None, self._idle
        self._idle = set()
        self._tell_later([(one, -one.leave()) for one in idle if not one.lent and one.left > 0])

    def _tell_later(self, changes: Sequence[tuple[Advance, int]]) -> None:
        if changes:
            self._keep(asyncio.get_running_loop().create_task(self._tell(changes)))

    async def _fetch(self, missing: Sequence[tuple[Advance, int]], soft: float) -> None:
        """Have the store count what is missing, with a reserve for later calls if that fits.

        Raises:
            CounterFull: it does not fit; nothing was counted.
        """
        wanted = [(advance, lacks + advance.reserve(lacks, soft)) for advance, lacks in missing]
        try:
            if wanted != missing:
                with suppress(CounterFull):
                    return await self._count(wanted)
            await self._count(missing)
        finally:
            for advance, amount in wanted:
                advance.coming -= amount
                # The call may have been given up by now.
                self._return_soon(advance)

    async def _count(self, wanted: Sequence[tuple[Advance, int]]) -> None:
        try:
            sums = await self._store.count(
                [advance.count(amount, is_bounded=True) for advance, amount in wanted]
            )
        except CounterFull as full:
            self._learn([one for one, _ in wanted if one.key == full.key], [full.sum])
            raise
        for advance, amount in wanted:
            advance.left += amount
        self._learn([advance for advance, _ in wanted], sums)

    async def _tell(self, changes: Sequence[tuple[Advance, int]]) -> None:
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                sums = await self._store.count(
                    [advance.count(amount) for advance, amount in changes]
                )
        except (TealError, TimeoutError) as error:
            # It may have been counted all the same: what is not known counts as spent.
            for advance, amount in changes:
                advance.left -= max(0, amount)
            logger.warning(
                "a reservation was not settled, and is held until its budget's time is over",
                extra={"error": type(error).__name__},
            )
            return
        self._learn([advance for advance, _ in changes], sums)

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Whatever becomes of the caller, who is told how it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._keep(task)
        return await asyncio.shield(task)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._counting.add(task)
        task.add_done_callback(self._counted)

    def _counted(self, task: asyncio.Task[Any]) -> None:
        self._counting.discard(task)
        # The caller has the error, if it still waits.
        task.cancelled() or task.exception()

    def _question(self, spender: Spender, limits: _Limits, soft: float) -> str | None:
        of_run = [(limit, self._runs.of(spender, limit)) for limit in limits.of_run]
        of_others = [(advance.limit, advance.seen or 0) for advance in limits.advances]
        for limit, spent in of_run + of_others:
            if spent >= soft * limit.most:
                return (
                    f"{limit.shown(spent)} of the {limit.shown(limit.most)} "
                    f"{limit.whose} are spent. May this turn go on?"
                )
        return None

    def _learn(self, advances: Sequence[Advance], sums: Sequence[int]) -> None:
        now = self._clock.monotonic()
        for advance, total in zip(advances, sums, strict=True):
            advance.seen, advance.seen_at = total, now

    def _agent(self, spender: Spender) -> AgentBudget:
        return self._agents.get(spender.agent) or AgentBudget(spender.agent, "")

    def _limits_of(self, spender: Spender, agent: AgentBudget) -> _Limits | None:
        """The agent's limits, with what is set aside of them for this user and this time."""
        if not agent.limits:
            return None
        now = self._clock.now()
        if not self._hour_ends_at - HOUR <= now < self._hour_ends_at or self._is_full:
            self._hour_ends_at = now.replace(minute=0, second=0, microsecond=0) + HOUR
            self._forget()
        limits = self._limits.get((spender.user_id, agent.label))
        if limits is None:
            limits = self._limits[spender.user_id, agent.label] = _Limits(
                [limit for limit in agent.limits if limit.scope == "run"],
                [
                    self._advance(limit, limit.key(spender, agent.label, now))
                    for limit in agent.limits
                    if limit.scope != "run"
                ],
            )
        return limits

    @property
    def _is_full(self) -> bool:
        return len(self._limits) > MAX_SPENDERS

    def _advance(self, limit: Limit, key: str) -> Advance:
        return self._advances.setdefault((key, limit.most), Advance(limit, key))

    def _forget(self) -> None:
        """All but what is set aside, and what calls under way have."""
        self._limits.clear()
        self._advances = {
            place: advance for place, advance in self._advances.items() if advance.is_in_use
        }

    def _refusal(self, held: _Held, full: CounterFull) -> BudgetExceeded:
        limit = next(one.limit for one in held.limits.advances if one.key == full.key)
        return self._exceeded(limit, full.sum, limit.amount(held.estimate))

    def _exceeded(self, limit: Limit, spent: int, wanted: int = 0) -> BudgetExceeded:
        most, whose = limit.shown(limit.most), limit.whose
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


def _has_much_left(advance: Advance, since: float) -> bool:
    """Less than half of it was spent a moment ago, so that the store need not be asked before
    a run begins. Before each call of the model it is, unless enough is set aside here."""
    if advance.seen is None or 2 * advance.seen >= advance.limit.most:
        return False
    return advance.seen_at > since
