"""How many event streams one user may hold open on this instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

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

    @contextmanager
    def held(self, user_id: str) -> Iterator[None]:
        """Count one stream more while the block runs.

        Raises:
            LimitExceeded: the user has as many already; nothing was sent yet.
        """
        if self._per_user is not None and self._open[user_id] >= self._per_user:
            raise LimitExceeded(
                f"There are {self._per_user} open streams already.", retry_after=RETRY_SECONDS
            )
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            # Users come and go; what is kept must not grow with them.
            if not self._open[user_id]:
                del self._open[user_id]
