"""Amounts that all instances count together: what every store decides alike.

A counter is forgotten by wall time: it may last longer than the machine runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sk_agents.engine.ports import Count
from sk_agents.exceptions import CounterFull

# Fewer counters are not worth looking for the forgotten ones among them.
FEW = 64


class Counter(NamedTuple):
    sum: int
    forget_at: float


def counted(
    additions: Sequence[Count], read: Callable[[str], Counter | None], now: float
) -> tuple[list[int], dict[str, Counter]]:
    """What `Store.count` promises, from a function that reads a counter: the sums after it, and
    the counters to write. Raises CounterFull: nothing is to be written."""
    changed: dict[str, Counter] = {}
    for addition in additions:
        key = addition.key
        counter = changed.get(key) or live(read(key), now)
        before = counter.sum if counter is not None else 0
        after = max(0, before + addition.amount)
        full = addition.at_most is not None and after > addition.at_most
        if addition.amount > 0 and full:
            raise CounterFull(key=key, sum=before)
        if counter is not None:
            changed[key] = counter._replace(sum=after)
        elif addition.amount > 0:
            changed[key] = Counter(after, now + addition.ttl)
    return [changed[a.key].sum if a.key in changed else 0 for a in additions], changed


def live(counter: Counter | None, now: float) -> Counter | None:
    return counter if counter is not None and now < counter.forget_at else None


class Counters:
    """Counters in memory. The forgotten ones are removed each time their number may have doubled:
    a small, constant share of each addition."""

    def __init__(self) -> None:
        self._by_key: dict[str, Counter] = {}
        self._sweep_at = FEW

    def __len__(self) -> int:
        return len(self._by_key)

    def count(self, additions: Sequence[Count], now: float) -> tuple[list[int], dict[str, Counter]]:
        """The sums, and the counters that have changed."""
        sums, changed = counted(additions, self._by_key.get, now)
        self.update(changed.items(), now)
        return sums, changed

    def update(self, changed: Iterable[tuple[str, Counter]], now: float) -> None:
        self._by_key.update(changed)
        if len(self._by_key) >= self._sweep_at:
            self._by_key = dict(self.items(now))
            self._sweep_at = max(FEW, 2 * len(self._by_key))

    def items(self, now: float) -> list[tuple[str, Counter]]:
        """All that are not forgotten."""
        return [(key, counter) for key, counter in self._by_key.items() if live(counter, now)]

    def sums(self, prefix: str, now: float) -> Mapping[str, int]:
        return {key: found.sum for key, found in self.items(now) if key.startswith(prefix)}
