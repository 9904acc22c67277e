"""What models have used: a row a day, user, agent and model, for people to look at.

Rows are added up in memory and written every few seconds, so that they cost a turn nothing. A
process that is killed loses the last seconds of them; budgets are counted elsewhere and exactly.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date
from typing import Self

from sk_agents.engine.models import Cost, Usage
from sk_agents.engine.ports import Clock, Count, Store
from sk_agents.exceptions import TealError
from sk_agents.wire.events import CostView
from sk_agents.wire.views import UsageRow

logger = logging.getLogger(__name__)

WRITE_SECONDS = 5.0
DAY_SECONDS = 86_400.0
# Of money: small enough for the price of one token.
NANO = 1_000_000_000
_PREFIX = "usage\t"

# The day, the user, the agent and the model.
Row = tuple[str, str, str, str]


def nano(cost: Cost | None) -> int:
    return round(cost.amount * NANO) if cost is not None else 0


class UsageLedger:
    """`keep_days` is how long a row is kept; with 0 nothing is written.

    `async with` it: entered after the store and left before it.
    """

    def __init__(self, store: Store, clock: Clock, keep_days: int) -> None:
        self._store = store
        self._clock = clock
        self._keep_days = keep_days
        self._unwritten: dict[Row, Counter[str]] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._keep_days:
            self._task = asyncio.get_running_loop().create_task(self._write_regularly())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            with suppress(TealError):
                await self.write()

    def add(self, user_id: str, agent: str, model: str, usage: Usage) -> None:
        if not self._keep_days:
            return
        row = (self._clock.now().date().isoformat(), user_id, agent, model)
        fields = self._unwritten.get(row)
        if fields is None:
            fields = self._unwritten[row] = Counter()
        fields["calls"] += 1
        fields["prompt"] += usage.prompt_tokens
        fields["completion"] += usage.completion_tokens
        if usage.cost is not None:
            fields[usage.cost.currency] += nano(usage.cost)

    async def rows(self, since: date, user_id: str | None = None) -> list[UsageRow]:
        """From a day on, oldest first; of one user, or of all. What other instances have not
        written yet is missing."""
        await self.write()
        sums = await self._store.sums(_PREFIX)
        wanted = {row: fields for row, fields in _by_row(sums) if row[0] >= since.isoformat()}
        return [
            _row(*row, fields)
            for row, fields in sorted(wanted.items())
            if user_id is None or row[1] == user_id
        ]

    async def write(self) -> None:
        """Raises StoreError: it is tried again later."""
        added, self._unwritten = self._unwritten, {}
        if not added:
            return
        ttl = (self._keep_days + 1) * DAY_SECONDS
        try:
            await self._store.count(
                [
                    Count(_PREFIX + "\t".join((*row, field)), n, ttl)
                    for row, fields in added.items()
                    for field, n in fields.items()
                    if n
                ]
            )
        except TealError:
            for row, fields in added.items():
                self._unwritten.setdefault(row, Counter()).update(fields)
            raise

    async def _write_regularly(self) -> None:
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self.write()
            except TealError as error:
                logger.warning("usage was not written", extra={"error": type(error).__name__})


def _by_row(sums: Mapping[str, int]) -> Iterable[tuple[Row, dict[str, int]]]:
    rows: dict[Row, dict[str, int]] = {}
    for key, total in sums.items():
        day, user_id, agent, model, field = key.removeprefix(_PREFIX).split("\t")
        rows.setdefault((day, user_id, agent, model), {})[field] = total
    return rows.items()


def _row(day: str, user_id: str, agent: str, model: str, fields: dict[str, int]) -> UsageRow:
    counted = {name: fields.pop(name, 0) for name in ("calls", "prompt", "completion")}
    return UsageRow(
        day=day,
        user_id=user_id,
        agent=agent,
        model=model,
        calls=counted["calls"],
        prompt_tokens=counted["prompt"],
        completion_tokens=counted["completion"],
        cost=[
            CostView(amount=total / NANO, currency=currency)
            for currency, total in sorted(fields.items())
        ],
    )
