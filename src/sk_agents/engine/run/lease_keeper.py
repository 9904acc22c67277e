"""Keeps this instance's leases alive from a thread of its own.

The event loop may stall for a while without losing its runs, but not without
limit: when it has not ticked for too long, the leases are left to run out and another instance
takes over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Self

from sk_agents.engine.ports import Clock, Store
from sk_agents.exceptions import StoreBroken, StoreError, TealError

logger = logging.getLogger(__name__)

TTL = 15.0
# A loop that has not ticked for this long is taken for dead.
STALL = 60.0


class LeaseKeeper:
    def __init__(self, store: Store, clock: Clock, owner: str, *, ttl: float = TTL) -> None:
        self.owner = owner
        self._store = store
        self._clock = clock
        self._ttl = ttl
        self._renewed = float("-inf")
        self._ticked = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Called on the event loop once the store says that it is broken.
        self.on_broken: Callable[[StoreBroken], None] = lambda error: None

    @property
    def is_fresh(self) -> bool:
        """Whether no other instance can have taken a lease of ours yet: a tool may start."""
        return self._clock.monotonic() - self._renewed < self._ttl * 2 / 3

    def has_held_since(self, moment: float) -> bool:
        """Whether leases that were fresh at `moment` cannot have run out in the meantime.

        A process that was stopped renews them when it goes on, but may have lost some before.
        """
        return self._clock.monotonic() - moment < self._ttl / 3

    async def freshen(self) -> bool:
        """Renew now; whether that made the leases fresh."""
        await asyncio.to_thread(self._try_to_renew, asyncio.get_running_loop())
        return self.is_fresh

    def stop_renewing(self) -> None:
        """Let the leases run out, so that another instance takes the runs over."""
        self._stop.set()
        self._renewed = float("-inf")

    async def __aenter__(self) -> Self:
        self._tick(asyncio.get_running_loop())
        await asyncio.to_thread(self._renew)
        self._thread = threading.Thread(
            target=self._renew_repeatedly,
            args=(asyncio.get_running_loop(),),
            name="leases",
            daemon=True,
        )
        self._thread.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        try:
            await self._store.retire(self.owner)
        except StoreError as error:
            logger.warning("leases left to run out", extra={"error": type(error).__name__})

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticked = self._clock.monotonic()
        self._timer = loop.call_later(self._ttl / 15, self._tick, loop)

    def _renew(self) -> None:
        asked = self._clock.monotonic()
        self._store.renew(self.owner, self._ttl)
        self._renewed = asked

    def _renew_repeatedly(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stop.wait(self._ttl / 3):
            if self._clock.monotonic() - self._ticked > STALL:
                continue
            self._try_to_renew(loop)

    def _try_to_renew(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._stop.is_set():
            return
        try:
            self._renew()
        except StoreBroken as error:
            loop.call_soon_threadsafe(self.on_broken, error)
        except TealError as error:
            logger.warning("lease renewal failed", extra={"error": type(error).__name__})
