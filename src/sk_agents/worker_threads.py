"""Blocking functions of foreign code in a bounded number of threads, off the event loop.

The threads are daemons of our own, not the loop's: a function that never returns must neither use
up the threads that others need nor keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from sk_agents.exceptions import ToolError

T = TypeVar("T")


class ThreadEnded(Exception):
    """The function tried to end the thread it runs in."""


class WorkerThreads:
    """At most `slots` calls at once, each in a thread of its own; further calls wait for a slot.

    A thread cannot be killed. One whose caller gave up is abandoned. It keeps its slot, unless
    `most_abandoned` is given: then it leaves the slot to others, but while so many abandoned
    threads still hang, no new call starts.
    """

    def __init__(self, slots: int = 32, *, most_abandoned: int | None = None) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._most_abandoned = most_abandoned
        self.abandoned = 0

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result; it sees the caller's context variables.

        Raises:
            ToolError: too many abandoned calls still hang.
            ThreadEnded: the function raised `SystemExit` or the like.
            Exception: whatever else the function raised.
        """
        await self._slots.acquire()
        keeps_slot = False
        try:
            if self._most_abandoned is not None and self.abandoned >= self._most_abandoned:
                raise ToolError("Too many earlier calls still hang. Try again later.")
            outcome: asyncio.Future[tuple[Any, BaseException | None]]
            outcome = asyncio.get_running_loop().create_future()
            work = (contextvars.copy_context(), function, outcome)
            threading.Thread(target=self._work, args=work, daemon=True, name="worker").start()
            try:
                result, error = await outcome
            except asyncio.CancelledError:
                if outcome.cancelled():
                    self.abandoned += 1
                    keeps_slot = self._most_abandoned is None
                raise
        finally:
            if not keeps_slot:
                self._slots.release()
        if error is None:
            return result  # type: ignore[no-any-return]  # it is what `function` returned
        if isinstance(error, Exception):
            raise error
        raise ThreadEnded from error

    def _work(
        self,
        context: contextvars.Context,
        function: Callable[[], Any],
        outcome: asyncio.Future[tuple[Any, BaseException | None]],
    ) -> None:
        result, error = None, None
        try:
            result = context.run(function)
        except BaseException as raised:  # foreign code, in a thread that has no caller
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nothing waits for this any more
            outcome.get_loop().call_soon_threadsafe(self._settle, outcome, result, error)

    def _settle(
        self,
        outcome: asyncio.Future[tuple[Any, BaseException | None]],
        result: Any,
        error: BaseException | None,
    ) -> None:
        if not outcome.cancelled():
            outcome.set_result((result, error))
            return
        self.abandoned -= 1
        if self._most_abandoned is None:
            self._slots.release()
