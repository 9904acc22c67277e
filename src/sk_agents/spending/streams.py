"""How many streams each user holds open at other instances: told to each other every few seconds.

An instance bounds its own streams at once, and those of the others as they were when they last
told: a user may pass the limit by what they open elsewhere within two periods.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Self

from sk_agents.engine.ports import Clock, Count, Store
from sk_agents.exceptions import TealError

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0


class StreamCensus:
    """`here` are the open streams of this instance, by user; `told` is called with those of the
    others. `async with` it while the store is open."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        here: Mapping[str, int],
        told: Callable[[Mapping[str, int]], None],
        *,
        period: float | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._here = here
        self._told = told
        self._period = period or PERIOD_SECONDS
        # What this instance has told, by period.
        self._own: dict[int, dict[str, int]] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._tell_regularly())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def tell(self) -> None:
        """Once in each period. All instances have told by the end of one, so the last whole one
        is read."""
        now = int(self._clock.now().timestamp() / self._period)
        if now not in self._own:
            own = {user_id: number for user_id, number in self._here.items() if number > 0}
            await self._store.count(
                [Count(f"{_prefix(now)}{user}", n, 3 * self._period) for user, n in own.items()]
            )
            self._own = {now: own, now - 1: self._own.get(now - 1, {})}
        before, own = _prefix(now - 1), self._own[now - 1]
        sums = await self._store.sums(before)
        counted = {key.removeprefix(before): total for key, total in sums.items()}
        self._told(
            {user: left for user, n in counted.items() if (left := n - own.get(user, 0)) > 0}
        )

    async def _tell_regularly(self) -> None:
        while True:
            try:
                await self.tell()
            except TealError as error:
                logger.warning("streams were not counted", extra={"error": type(error).__name__})
            await asyncio.sleep(self._period / 2)


def _prefix(period: int) -> str:
    return f"streams\t{period}\t"
