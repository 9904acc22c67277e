"""Who is reading a run, and what its last reader's leaving means.

A lost client only detaches. A run that is to end with its readers gets a grace, long enough to
reload a page; one that waits for a person is never ended by a disconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

GRACE_SECONDS = 30.0

Abandon = Callable[[str, str], Coroutine[None, None, None]]


class Readers:
    """`abandon(thread_id, run_id)` is called once a run has had no reader for the grace."""

    def __init__(self, abandon: Abandon, grace: float = GRACE_SECONDS) -> None:
        self._abandon = abandon
        self._grace = grace
        self._counts: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def reading(
        self, thread_id: str, run_id: str, ends_with_readers: Callable[[], bool]
    ) -> Iterator[None]:
        """`ends_with_readers` is asked when the last one leaves: is there still a run to end?"""
        self._counts[run_id] = self._counts.get(run_id, 0) + 1
        if run_id in self._timers:
            self._timers.pop(run_id).cancel()
        try:
            yield
        finally:
            self._counts[run_id] -= 1
            if not self._counts[run_id]:
                del self._counts[run_id]
                if ends_with_readers():
                    self._start_grace(thread_id, run_id)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _start_grace(self, thread_id: str, run_id: str) -> None:
        loop = asyncio.get_running_loop()
        self._timers[run_id] = loop.call_later(self._grace, self._expire, thread_id, run_id)

    def _expire(self, thread_id: str, run_id: str) -> None:
        del self._timers[run_id]
        task = asyncio.get_running_loop().create_task(self._abandon(thread_id, run_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
