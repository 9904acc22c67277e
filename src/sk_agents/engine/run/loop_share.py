"""Long work on the event loop, in slices, so that nobody else waits for all of it."""

from __future__ import annotations

import asyncio

# How long the loop may be held before others get their turn.
SLICE_SECONDS = 0.01


class LoopShare:
    """One piece of work: it calls `pause` between its steps."""

    __slots__ = ("_loop", "_until")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + SLICE_SECONDS

    async def pause(self) -> None:
        """Let others have the loop, if this work has had it for long enough."""
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._loop.time() + SLICE_SECONDS
