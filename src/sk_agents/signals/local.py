"""Wake-ups inside one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LocalSubscription:
    """Remembers one wake-up, so that none is lost between two waits."""

    __slots__ = ("_pending", "_waiter")

    def __init__(self) -> None:
        self._pending = False
        self._waiter: asyncio.Future[bool] | None = None

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
        self._waiter = waiter = loop.create_future()
        timer = loop.call_later(seconds, _give_up, waiter)
        try:
            return bool(await waiter)
        finally:
            timer.cancel()
            self._waiter = None


class LocalSignals:
    """For one event loop. A thread nobody waits for costs nothing."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, list[LocalSubscription]] = {}

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        for subscription in self._subscriptions.get(thread_id, ()):
            subscription.ring()

    @asynccontextmanager
    async def subscribe(self, thread_id: str) -> AsyncIterator[LocalSubscription]:
        subscription = LocalSubscription()
        self._subscriptions.setdefault(thread_id, []).append(subscription)
        try:
            yield subscription
        finally:
            waiting = self._subscriptions[thread_id]
            waiting.remove(subscription)
            if not waiting:
                del self._subscriptions[thread_id]


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
