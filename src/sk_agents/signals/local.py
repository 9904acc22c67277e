"""Wake-ups inside one process."""

from __future__ import annotations

import asyncio
from typing import Self


class LocalSubscription:
    """Remembers one wake-up, so that none is lost between two waits.

    Has one timer, moved only when it fires or would fire too late: most waits end long before.
    """

    __slots__ = ("_deadline", "_neighbours", "_pending", "_thread_id", "_timer", "_waiter")

    def __init__(self, neighbours: dict[str, list[LocalSubscription]], thread_id: str) -> None:
        self._neighbours = neighbours
        self._thread_id = thread_id
        self._pending = False
        self._waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0

    async def __aenter__(self) -> Self:
        self._neighbours.setdefault(self._thread_id, []).append(self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        waiting = self._neighbours[self._thread_id]
        waiting.remove(self)
        if not waiting:
            del self._neighbours[self._thread_id]

    def ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)
        else:
            self._pending = True

    async def wait(self, seconds: float) -> bool:
        if self._pending:
            self._pending = False
            return True
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer(loop)
        self._waiter = loop.create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._look_at_the_time, loop)

    def _look_at_the_time(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if loop.time() < self._deadline:
            self._set_timer(loop)
        else:
            self._waiter.set_result(False)


class LocalSignals:
    """For one event loop. A thread nobody waits for costs nothing."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, list[LocalSubscription]] = {}

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        for subscription in self._subscriptions.get(thread_id, ()):
            subscription.ring()

    def subscribe(self, thread_id: str) -> LocalSubscription:
        return LocalSubscription(self._subscriptions, thread_id)
