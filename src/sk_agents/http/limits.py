"""What one request, one user may take. Every surface asks here; `create_app` fills it in.

How many event streams a user holds open, how many chats are kept, how many
approvals wait. Counts are remembered, so that an ordinary turn asks no store. They are taken again
before they can be far off: after a while, for other instances write too, and before as many runs as
could go past the limit have begun here. What is remembered is bounded; a forgotten user is counted
again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from time import monotonic
from typing import Generic, Self, TypeVar

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sk_agents.engine.engine import Engine
from sk_agents.engine.ports import ThreadQuery
from sk_agents.engine.threads.catalog import ThreadCatalog
from sk_agents.engine.values import dataclass
from sk_agents.exceptions import LimitExceeded
from sk_agents.http.body import BODY_SECONDS, MAX_BYTES, MAX_BYTES_WITH_IMAGES

PER_USER = 100
RETRY_SECONDS = 5
# How long a count is believed, and how long one that refuses: it costs the most.
BELIEVED_SECONDS = 600.0
REFUSING_SECONDS = 60.0
# No user deletes a chat to make room, or answers a thousand questions, in a minute.
CHATS_RETRY_SECONDS = 3600
PENDING_RETRY_SECONDS = 300
MAX_USERS = 10_000

T = TypeVar("T")


class StreamSlots:
    """`with slots.held(user_id):` around the sending of a stream. `None` means no limit.

    There must be none where all callers are one user: one page too many would lock all out.
    """

    def __init__(self, per_user: int | None = PER_USER) -> None:
        self._per_user = per_user
        self._open: Counter[str] = Counter()
        # Those at other instances, as far as they are known here.
        self.elsewhere: Mapping[str, int] = {}

    @property
    def is_limited(self) -> bool:
        return self._per_user is not None

    @property
    def by_user(self) -> Mapping[str, int]:
        """How many are open, for those who have any."""
        return self._open

    @property
    def everywhere(self) -> Mapping[str, int]:
        """With those at other instances, as far as they are known here."""
        return self._open + Counter(self.elsewhere)

    def held(self, user_id: str) -> StreamSlot:
        """Count one stream more until the slot is left or released.

        Raises:
            LimitExceeded: the user has as many already; nothing was sent yet.
        """
        is_open = self._open[user_id] + self.elsewhere.get(user_id, 0)
        if self._per_user is not None and is_open >= self._per_user:
            raise LimitExceeded(
                f"There are {self._per_user} open streams already.", retry_after=RETRY_SECONDS
            )
        self._open[user_id] += 1
        return StreamSlot(self._open, user_id)


class StreamSlot:
    """One stream of a user; `with` it, or release it."""

    __slots__ = ("_is_held", "_open", "_user_id")

    def __init__(self, open_streams: Counter[str], user_id: str) -> None:
        self._open = open_streams
        self._user_id = user_id
        self._is_held = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def release(self) -> None:
        """To release it again does nothing."""
        if not self._is_held:
            return
        self._is_held = False
        self._open[self._user_id] -= 1
        # Users come and go; what is kept must not grow with them.
        if not self._open[self._user_id]:
            del self._open[self._user_id]


class HeldStream(Response):
    """Sends a stream while it holds one of the user's slots: one that is given, or one it takes.

    Raises LimitExceeded when it is to be sent and the user has no slot left; nothing is sent then.
    """

    def __init__(
        self, slots: StreamSlots, user_id: str, stream: ASGIApp, slot: StreamSlot | None = None
    ) -> None:
        super().__init__()
        self._slots = slots
        self._user_id = user_id
        self._stream = stream
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot or self._slots.held(self._user_id):
            await self._stream(scope, receive, send)


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
    """`pending` of `None` means no limit: there must be none where all callers are one user.

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
            known.left = room // self._calls
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


@dataclass(frozen=True, slots=True)
class Limits:
    """`quotas` are by surface: those whose conversations are kept have one."""

    slots: StreamSlots
    quotas: Mapping[str, Quotas]
    body_bytes: int = MAX_BYTES
    image_body_bytes: int = MAX_BYTES_WITH_IMAGES
    body_seconds: float = BODY_SECONDS
    # Raises LimitExceeded: this user may make no further request now. `None`: no limit.
    admit_request: Callable[[str], Awaitable[None]] | None = None


def limits_of(connection: HTTPConnection) -> Limits:
    limits: Limits = connection.app.state.limits
    return limits


async def admit_request(scope: Scope, user_id: str) -> None:
    """Raises LimitExceeded: this user may make no further request now."""
    admit = scope["app"].state.limits.admit_request
    if admit is not None:
        await admit(user_id)


def quota_of(connection: HTTPConnection, engine: Engine, surface: str) -> EngineQuota:
    """What the engine asks before it begins a run."""
    return EngineQuota(limits_of(connection).quotas[surface], engine.catalog)
