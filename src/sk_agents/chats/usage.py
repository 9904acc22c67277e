"""What models have used and what may still be spent, for the people who pay for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from fastapi import Query

from sk_agents.exceptions import Forbidden
from sk_agents.http.caller import RequestCaller
from sk_agents.wire.views import BudgetReport, UsageReport, UsageRow

OPERATOR = "operator"
DAYS = 30

# The rows from a day on, of one user or of all.
ReadUsage = Callable[[date, str | None], Awaitable[Sequence[UsageRow]]]
# What is left of one user's budgets, or of all.
ReadBudgets = Callable[[str | None], Awaitable[BudgetReport]]


class UsageEndpoints:
    def __init__(self, read: ReadUsage, read_budgets: ReadBudgets) -> None:
        self._read = read
        self._read_budgets = read_budgets

    async def report(
        self,
        caller: RequestCaller,
        since: Annotated[date | None, Query(description="Unset: 30 days ago.")] = None,
        all_users: Annotated[
            bool, Query(alias="all", description="Of all users: for operators.")
        ] = False,
    ) -> UsageReport:
        """What models have used: a row a day, agent and model."""
        if all_users and OPERATOR not in caller.roles:
            raise Forbidden("Only an operator sees what other users have used.")
        since = since or datetime.now(UTC).date() - timedelta(days=DAYS)
        rows = await self._read(since, None if all_users else caller.user_id)
        return UsageReport(since=since.isoformat(), rows=list(rows))

    async def budgets(
        self,
        caller: RequestCaller,
        all_users: Annotated[
            bool,
            Query(alias="all", description="Of all users, agents and the server: for operators."),
        ] = False,
    ) -> BudgetReport:
        """What you may spend, and what is left of it."""
        if all_users and OPERATOR not in caller.roles:
            raise Forbidden("Only an operator sees what other users may spend.")
        return await self._read_budgets(None if all_users else caller.user_id)
