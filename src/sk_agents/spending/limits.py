"""What a budget allows: so much of a unit, in a scope, in a period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Literal

from sk_agents.config.amounts import Amounts
from sk_agents.engine.models import Usage
from sk_agents.engine.ports import Spender
from sk_agents.spending.usage import DAY_SECONDS, NANO, nano

Scope = Literal["run", "user", "agent", "day", "hour"]
TOKENS = "tokens"
HOUR_SECONDS = 3600.0
OF_USERS = ("user", "hour")
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
        """Of the counter in a store; a run is counted by its log."""
        when = now.strftime("%Y-%m-%dT%H" if self.scope == "hour" else "%Y-%m-%d")
        whose: Sequence[str] = {
            "run": [spender.run_id],
            "user": [spender.user_id, *([agent] if self.is_own else [])],
            "agent": [agent],
            "day": [],
            "hour": [spender.user_id],
        }[self.scope]
        return "\t".join(("budget", self.scope, when, self.unit, *whose))

    @property
    def whose(self) -> str:
        """As the end of a sentence."""
        return _WHOSE[self.scope]

    @property
    def ttl(self) -> float:
        """How long a store keeps its counter."""
        return 2 * (HOUR_SECONDS if self.scope == "hour" else DAY_SECONDS)

    def amount(self, usage: Usage) -> int:
        """What of this usage counts for it."""
        if self.unit == TOKENS:
            return usage.prompt_tokens + usage.completion_tokens
        cost = usage.cost
        return nano(cost) if cost is not None and cost.currency == self.unit else 0

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
