"""How many event streams one user may hold open on this instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Self

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sk_agents.exceptions import LimitExceeded

PER_USER = 100
RETRY_SECONDS = 5


class StreamSlots:
    """`with slots.held(user_id):` around the sending of a stream. `None` means no limit.

    There must be none where everybody is the same user: one page too many would lock all out.
    """

    def __init__(self, per_user: int | None = PER_USER) -> None:
        self._per_user = per_user
        self._open: Counter[str] = Counter()

    @property
    def by_user(self) -> Mapping[str, int]:
        """How many are open, for those who have any."""
        return self._open

    def held(self, user_id: str) -> Slot:
        """Count one stream more until the slot is left or released.

        Raises:
            LimitExceeded: the user has as many already; nothing was sent yet.
        """
        if self._per_user is not None and self._open[user_id] >= self._per_user:
            raise LimitExceeded(
                f"There are {self._per_user} open streams already.", retry_after=RETRY_SECONDS
            )
        self._open[user_id] += 1
        return Slot(self._open, user_id)


class Slot:
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
        self, slots: StreamSlots, user_id: str, stream: ASGIApp, slot: Slot | None = None
    ) -> None:
        super().__init__()
        self._slots = slots
        self._user_id = user_id
        self._stream = stream
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot or self._slots.held(self._user_id):
            await self._stream(scope, receive, send)
