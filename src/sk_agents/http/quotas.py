"""How much one user may pile up: chats that are kept, approvals that wait for an answer.

Counts are remembered, so that an ordinary turn asks no store. They are taken anew before they can
be far off: after a while, for other instances write too, and before as many runs as could go
past the limit have begun here. What is remembered is bounded; a forgotten user is counted anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Generic, TypeVar

from sk_agents.engine.ports import ThreadQuery
from sk_agents.engine.threads.catalog import ThreadCatalog
from sk_agents.exceptions import LimitExceeded

# How long a count is believed, and how long one that refuses: it costs the most.
BELIEVED_SECONDS = 600.0
REFUSING_SECONDS = 60.0
# Nobody deletes a chat to make room, or answers a thousand questions, in a minute.
CHATS_RETRY_SECONDS = 3600
PENDING_RETRY_SECONDS = 300
MAX_USERS = 10_000

T = TypeVar("T")


@dataclass(slots=True)
class _Chats:
    number: int = 0
    counted_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class _Runs:
    """`left` more may begin without a look at what waits."""

    left: int = 0
    counted_at: float = float("-inf")


class Quotas:
    """`pending` of `None` means no limit: there must be none where everybody is the same user.

    `calls` is the most approvals that one run can wait for at a time; chats are the threads of
    `surface`.
    """

    def __init__(
        self,
        surface: str,
        *,
        chats: int,
        pending: int | None,
        calls: int,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._surface = surface
        self._now = now
        self._most_chats = chats
        self._most_pending = pending
        self._calls = calls
        self._chats = _Users(_Chats)
        self._runs = _Users(_Runs)

    async def admit(self, catalog: ThreadCatalog, user_id: str, makes_chat: bool) -> None:
        """A run of this user is about to begin, with a chat of its own or in one that is there.

        Raises:
            LimitExceeded: the user has as many chats, or as many approvals wait already.
        """
        if self._most_pending is not None:
            await self._admit_run(catalog, user_id, self._most_pending)
        if makes_chat:
            await self.admit_chat(catalog, user_id)

    async def admit_chat(self, catalog: ThreadCatalog, user_id: str) -> None:
        """A chat of this user is about to be made.

        Raises:
            LimitExceeded: there are as many already.
        """
        known = self._chats.of(user_id)
        if self._is_stale(known):
            async with known.lock:
                if self._is_stale(known):
                    query = ThreadQuery(user_id, surface=self._surface, limit=self._most_chats)
                    known.number = len((await catalog.threads(query)).threads)
                    known.counted_at = self._now()
        if known.number >= self._most_chats:
            raise LimitExceeded(
                f"You have {self._most_chats} chats, as many as one user may keep; delete some.",
                retry_after=CHATS_RETRY_SECONDS,
            )
        known.number += 1

    def release_chat(self, user_id: str) -> None:
        """A chat of this user is gone, or was not made after all."""
        known = self._chats.of(user_id)
        known.number = max(0, known.number - 1)

    async def _admit_run(self, catalog: ThreadCatalog, user_id: str, most: int) -> None:
        known = self._runs.of(user_id)
        if known.left <= 0 or self._now() - known.counted_at > BELIEVED_SECONDS:
            room = most - await catalog.waiting(user_id, most)
            if room <= 0:
                raise LimitExceeded(
                    f"{most} approvals wait for your decision; decide some before you go on.",
                    retry_after=PENDING_RETRY_SECONDS,
                )
            known.left = max(1, room // self._calls)
            known.counted_at = self._now()
        known.left -= 1

    def _is_stale(self, known: _Chats) -> bool:
        is_full = known.number >= self._most_chats
        believed = REFUSING_SECONDS if is_full else BELIEVED_SECONDS
        return self._now() - known.counted_at > believed


@dataclass(frozen=True, slots=True)
class EngineQuota:
    """The engine's port `Quota`: these limits, counted in the threads of one engine."""

    quotas: Quotas
    catalog: ThreadCatalog

    async def admit(self, user_id: str, *, makes_thread: bool) -> None:
        await self.quotas.admit(self.catalog, user_id, makes_thread)


class _Users(Generic[T]):
    """Something for each user; the longest known are forgotten first."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._known: dict[str, T] = {}

    def of(self, user_id: str) -> T:
        known = self._known.get(user_id)
        if known is None:
            if len(self._known) >= MAX_USERS:
                del self._known[next(iter(self._known))]
            known = self._known[user_id] = self._make()
        return known
