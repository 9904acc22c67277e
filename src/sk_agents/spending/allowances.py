"""How often one user may do something in each minute or hour, over all instances.

An instance takes a small block of the user's allowance from the store at a time and gives it out
by itself: most requests ask no store. So a user never gets more than the limit in a window, and may
get less, by what is left of the blocks of other instances: at most a `BLOCKS`th of the limit each.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from sk_agents.engine.ports import Clock, Count, Store
from sk_agents.exceptions import CounterFull, LimitExceeded

BLOCKS = 20
MAX_USERS = 10_000


@dataclass(slots=True)
class _Block:
    """What is left here of a user's allowance in one window."""

    window: int = -1
    left: int = 0
    is_used_up: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Allowance:
    """`name` is part of the counters' keys, `what` of the sentence that refuses."""

    def __init__(
        self, store: Store, clock: Clock, *, name: str, what: str, most: int, seconds: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._what = what
        self._most = most
        self._seconds = seconds
        self._size = max(1, most // BLOCKS)
        self._blocks: OrderedDict[str, _Block] = OrderedDict()

    async def require(self, user_id: str) -> None:
        """Raises LimitExceeded: the user has done it as often as they may in this window."""
        block = self._block(user_id)
        if block.left > 0:
            block.left -= 1
        elif not await self.take(user_id, 1):
            left = self._seconds - int(self._clock.now().timestamp()) % self._seconds
            every = "a minute" if self._seconds == 60 else "an hour"
            raise LimitExceeded(
                f"You may make {self._most} {self._what} {every}.", retry_after=left
            )

    async def take(self, user_id: str, wanted: int) -> int:
        """How many of so many the user may do now; those are counted.

        Raises:
            StoreError: the store cannot say.
        """
        block = self._block(user_id)
        if block.left < wanted and not block.is_used_up:
            async with block.lock:
                await self._refill(user_id, block, wanted)
        granted = min(wanted, block.left)
        block.left -= granted
        return granted

    def _block(self, user_id: str) -> _Block:
        """The user's block in the window that is now. The longest unseen users are forgotten."""
        window = int(self._clock.now().timestamp()) // self._seconds
        block = self._blocks.get(user_id)
        if block is None:
            block = self._blocks[user_id] = _Block()
            if len(self._blocks) > MAX_USERS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(user_id)
        if block.window != window:
            block.window, block.left, block.is_used_up = window, 0, False
        return block

    async def _refill(self, user_id: str, block: _Block, wanted: int) -> None:
        window, missing = block.window, wanted - block.left
        if missing <= 0 or block.is_used_up:
            return
        amount = max(self._size, missing)
        key, ttl = f"{self._name}\t{window}\t{user_id}", 2.0 * self._seconds
        while amount > 0:
            try:
                await self._store.count([Count(key, amount, ttl, self._most)])
                break
            except CounterFull as full:
                # The rest, unless another instance is faster. A limit that was lowered has none.
                amount = max(0, min(amount - 1, self._most - full.sum))
        if block.window == window:
            block.left += amount
            block.is_used_up = amount < missing
