"""How much work something is: calls made, which no busy machine changes, and processor time."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TIMES = 8
# Of calls: what linear work may do more than so many times the work. Quadratic does 64 times.
MOST_CALLS = 1.25 * TIMES
# Of time, where what is not linear may lie within one call: generous, since caches have sizes.
MOST_TIME = 3.0 * TIMES
REPETITIONS = 3


class Counter:
    """Calls of Python and C functions since it was made, in this thread."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


def calls_of(work: Callable[[], object]) -> int:
    counter = Counter()
    sys.setprofile(counter)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counter.calls


def seconds_of(make: Callable[[], Callable[[], object]]) -> float:
    """The least of some tries, each with things of its own."""
    found = []
    for _ in range(REPETITIONS):
        work = make()
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return min(found)


@contextmanager
def largest_step() -> Iterator[Callable[[], int]]:
    """The most calls that one step of the event loop has made within the block."""
    counter, most = Counter(), 0
    run = asyncio.Handle._run

    def counted(handle: asyncio.Handle) -> None:
        nonlocal most
        before = counter.calls
        run(handle)
        most = max(most, counter.calls - before)

    asyncio.Handle._run = counted  # type: ignore[method-assign,assignment]  # no other way in
    sys.setprofile(counter)
    try:
        yield lambda: most
    finally:
        sys.setprofile(None)
        asyncio.Handle._run = run  # type: ignore[method-assign]  # as it was
