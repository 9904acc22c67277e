"""Wake-ups inside one process."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import Self


class LocalSubscription:
    """Remembers one wake-up, so that none is lost between two waits."""

    __slots__ = ("_alarms", "_neighbours", "_pending", "_thread_id", "_waiter")

    def __init__(
        self, neighbours: dict[str, list[LocalSubscription]], thread_id: str, alarms: _Alarms
    ) -> None:
        self._neighbours = neighbours
        self._thread_id = thread_id
        self._alarms = alarms
        self._pending = False
        self._waiter: asyncio.Future[bool] | None = None

    async def __aenter__(self) -> Self:
        self._neighbours.setdefault(self._thread_id, []).append(self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
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
        self._waiter = self._alarms.waiter(seconds)
        try:
            return await self._waiter
        finally:
            self._waiter = None


class _Alarms:
    """Ends waits when their time is up, all with one timer: most end long before, by a wake-up,
    and setting a timer and stopping it again takes longer than to let it be."""

    def __init__(self) -> None:
        # The next one first. The number tells apart what is due at the same moment.
        self._due: list[tuple[float, int, asyncio.Future[bool]]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    def waiter(self, seconds: float) -> asyncio.Future[bool]:
        """It is False after so many seconds, if nobody has made it anything before."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        moment = loop.time() + seconds
        heappush(self._due, (moment, next(self._numbers), waiter))
        if self._timer is None or self._timer.when() > moment:
            self._ring_at(moment, loop)
        return waiter

    def _ring_at(self, moment: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(moment, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        while self._due:
            moment, _, waiter = self._due[0]
            if not waiter.done():
                if moment > now:
                    self._ring_at(moment, loop)
                    return
                waiter.set_result(False)
            heappop(self._due)


class LocalSignals:
    """For one event loop. A thread nobody waits for costs nothing."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, list[LocalSubscription]] = {}
        self._alarms = _Alarms()

    def notify(self, thread_id: str, *, local: bool = False) -> None:
        for subscription in self._subscriptions.get(thread_id, ()):
            subscription.ring()

    def subscribe(self, thread_id: str) -> LocalSubscription:
        return LocalSubscription(self._subscriptions, thread_id, self._alarms)
