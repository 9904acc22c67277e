"""The time a task may take for a part of its work."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Deadline:
    """`asyncio.timeout` for the one place that every run goes through, at two thirds of its cost.

    Raises:
        TimeoutError: at the end of the `with`, which was cut off when its time was up.
    """

    __slots__ = ("_cancels", "_has_passed", "_left", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "only a task can be cut off"
        self._task = task
        self._cancels = task.cancelling()
        self._has_passed = False
        self._left = 0.0
        self._timer = asyncio.get_running_loop().call_later(seconds, self._cut_off)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self._has_passed:
            is_ours_alone = self._task.uncancel() <= self._cancels
            if is_ours_alone and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def pause(self) -> None:
        """What follows does not count, until `resume`."""
        self._left = self._timer.when() - asyncio.get_running_loop().time()
        self._timer.cancel()

    def resume(self) -> None:
        if not self._has_passed:
            self._timer = asyncio.get_running_loop().call_later(max(self._left, 0), self._cut_off)

    def _cut_off(self) -> None:
        self._has_passed = True
        self._task.cancel()
