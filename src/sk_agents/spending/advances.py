"""What an instance has counted of a budget and not spent yet, so that most calls ask no store.

A call that needs more than is left here asks the store, as if there were no advance. What calls
give back stays here for the next ones for a moment, while less than half of the budget is spent: a
small share of it, if that is enough for a call. So the end of a budget, and a small one, is counted
to the last call, and where nothing is under way the store has counted what was spent and nothing
else. Nothing is given out here that the store has not counted.
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

    @property
    def is_in_use(self) -> bool:
        return bool(self.lent or self.left or self.coming)

    def lend(self, amount: int) -> int:
        """Give a call so much; what the store has to be asked for, since it is not left."""
        self.lent += 1
        self.left -= amount
        if self.left >= 0:
            return 0
        # Others wait for the rest.
        missing = -self.left if self.lent == 1 else min(amount, -self.left)
        self.coming += missing
        return missing

    def take_back(self, amount: int, spent: int, soft: float) -> int:
        """A call that was lent so much has spent so much. What the store has to be told: how much
        more was spent than it has counted, or below 0 what it gets back."""
        self.lent -= 1
        if spent > amount:
            return spent - amount - self._surplus(amount, soft)
        self.left += amount - spent
        return -self._surplus(amount, soft)

    def reserve(self, missing: int, soft: float) -> int:
        """What to ask the store for beyond what is missing now; that is coming, too."""
        room = self._most_kept(soft) - self.left - self.coming
        reserve = min(CALLS * missing, room) if room >= missing and self.lent > 1 else 0
        self.coming += reserve
        return reserve

    def leave(self) -> int:
        """All that is left: the store is to have it back."""
        left, self.left = self.left, 0
        return left

    def _surplus(self, amount: int, soft: float) -> int:
        most = self._most_kept(soft)
        surplus = max(0, self.left - (most if most >= amount else 0))
        self.left -= surplus
        return surplus

    def _most_kept(self, soft: float) -> int:
        """Nothing from half of what may be spent without a question on."""
        if self.seen is None or 2 * self.seen >= soft * self.limit.most:
            return 0
        return self.limit.most // SHARE

    def count(self, amount: int, *, is_bounded: bool = False) -> Count:
        most = self.limit.most if is_bounded else None
        return Count(self.key, amount, self.limit.ttl, most)
