"""Waiting without time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sk_agents.client.connection import RetryTiming


async def _at_once() -> None:
    await asyncio.sleep(0)


class SettableTime:
    """Time passes only by waiting. `meanwhile` is what happens in the world during a wait."""

    def __init__(
        self, *, chance: float = 0.5, meanwhile: Callable[[], Awaitable[object]] = _at_once
    ) -> None:
        self.now = 1000.0
        self.waits: list[float] = []
        self._meanwhile = meanwhile
        self.pace = RetryTiming(lambda: self.now, self._sleep, lambda: chance)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await self._meanwhile()
