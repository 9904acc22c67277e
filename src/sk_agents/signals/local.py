"""Wake-ups inside one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self


class LocalSubscription:
    """Remembers one wake-up, so that none is lost between two waits."""

    __slots__ = ("_is_pending", "_subscriptions", "_thread_id", "_waiter")

    def __init__(self, subscriptions: dict[str, list[LocalSubscription]], thread_id: str) -> None:
        self._subscriptions = subscriptions
        self._thread_id = thread_id
        self._is_pending = False
        self._waiter: asyncio.Future[bool] | None = None

    async def __aenter__(self) -> Self:
        self._subscriptions.setdefault(self._thread_id, []).append(self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        subscriptions = self._subscriptions[self._thread_id]
        subscriptions.remove(self)
        if not subscriptions:
            del self._subscriptions[self._thread_id]

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)
        else:
            self._is_pending = True

    async def wait(self, seconds: float) -> bool:
        if self._is_pending:
            self._is_pending = False
            return True
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        # One timer for all waits would save 1 us of a wait's 7, on uvloop nothing.
        timer = loop.call_later(seconds, _end_wait, self._waiter)
        try:
            return await self._waiter
        finally:
            timer.cancel()
            self._waiter = None


def _end_wait(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


class LocalSignals:
    """For one event loop. A thread without subscribers costs nothing."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, list[LocalSubscription]] = {}
        self._listeners: list[Callable[[str], None]] = []

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        for subscription in self._subscriptions.get(thread_id, ()):
            subscription.wake()

    def subscribe(self, thread_id: str) -> LocalSubscription:
        return LocalSubscription(self._subscriptions, thread_id)

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def notified_elsewhere(self, thread_id: str) -> None:
        """For signals that reach further than this process: another one has notified."""
        for subscription in self._subscriptions.get(thread_id, ()):
            subscription.wake()
        for listener in self._listeners:
            listener(thread_id)
