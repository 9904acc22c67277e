"""What an instance has counted of a budget and not spent yet, so that most calls ask no store.

A call that needs more than is left here asks the store, as if there were no advance. What calls
give back stays here for the next ones while others are under way and less than half of the budget
is spent: a small share of it. So the end of a budget is counted to the last call, and where nothing
is under way the store has counted what was spent and nothing else. Nothing is given out here that
the store has not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from sk_agents.engine.ports import Count
from sk_agents.spending.limits import Limit

# Of a budget: what one instance may set aside. And for how many calls it does so at a time.
SHARE = 50
CALLS = 16


@dataclass(slots=True, eq=False)
class Advance:
    """Of one budget, in one period.

    `left` is what no call has, below 0 while calls wait for what the store has been asked for, or
    if the store could not be told what a call used; `coming` is what it has been asked for, `lent`
    how many calls are under way. `seen` is what it last said was counted.
    """

    limit: Limit
    key: str
    left: int = 0
    coming: int = 0
    lent: int = 0
    seen: int | None = None
    seen_at: float = 0.0

    def lend(self, amount: int) -> int:
        """Give a call so much; what the store has to be asked for, since it is not left."""
        self.lent += 1
        self.left -= amount
        missing = max(0, -self.left)
        if self.lent > 1:
            # The rest is what others wait for.
            missing = min(amount, missing)
        self.coming += missing
        return missing

    def take_back(self, unspent: int) -> None:
        """A call has ended and has not spent so much of what it was lent."""
        self.lent -= 1
        self.left += unspent

    def reserve(self, missing: int, soft: float) -> int:
        """What to ask the store for beyond what is missing now."""
        room = self._most_kept(soft) - self.left - self.coming
        return max(0, min(CALLS * missing, room)) if self.lent > 1 else 0

    def surplus(self, soft: float) -> int:
        """What the store is to have back."""
        kept = self._most_kept(soft) if self.lent else 0
        return max(0, self.left - kept)

    def _most_kept(self, soft: float) -> int:
        """Nothing from half of what may be spent without a question on."""
        is_ample = self.seen is not None and 2 * self.seen < soft * self.limit.most
        return self.limit.most // SHARE if is_ample else 0

    def count(self, amount: int, *, is_bounded: bool = False) -> Count:
        most = self.limit.most if is_bounded else None
        return Count(self.key, amount, self.limit.ttl, most)
