"""Threads for tools that block.

A thread cannot be killed. One whose caller gave up is abandoned: it no longer takes a slot, but it
is counted, and past a bound no new call starts until some of them have come back. The threads are
daemons, so that a tool that hangs for ever does not keep the process from ending.
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


class CallThreads:
    def __init__(self, *, running: int = 32, abandoned: int = 16) -> None:
        self._slots = asyncio.Semaphore(running)
        self._most_abandoned = abandoned
        self.abandoned = 0

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result, from a thread of its own with the caller's context variables.

        Raises:
            ToolError: too many abandoned calls still hang, or the function tried to end its
                thread. Whatever else the function raises.
        """
        async with self._slots:
            if self.abandoned >= self._most_abandoned:
                raise ToolError("Too many earlier calls still hang. Try again later.")
            outcome: asyncio.Future[tuple[Any, BaseException | None]]
            outcome = asyncio.get_running_loop().create_future()
            work = (contextvars.copy_context(), function, outcome)
            threading.Thread(target=self._work, args=work, daemon=True, name="tool").start()
            try:
                result, error = await outcome
            except asyncio.CancelledError:
                self.abandoned += outcome.cancelled()
                raise
        if error is None:
            return result  # type: ignore[no-any-return]  # it is what `function` returned
        if isinstance(error, Exception):
            raise error
        raise ToolError("The tool tried to end the thread it runs in.") from error

    def _work(
        self,
        context: contextvars.Context,
        function: Callable[[], Any],
        outcome: asyncio.Future[tuple[Any, BaseException | None]],
    ) -> None:
        result, error = None, None
        try:
            result = context.run(function)
        except BaseException as raised:  # the tool is foreign code, and its thread has no caller
            error = raised
        # A closed loop waits for nothing any more.
        with suppress(RuntimeError):
            outcome.get_loop().call_soon_threadsafe(self._settle, outcome, result, error)

    def _settle(
        self,
        outcome: asyncio.Future[tuple[Any, BaseException | None]],
        result: Any,
        error: BaseException | None,
    ) -> None:
        if outcome.cancelled():
            self.abandoned -= 1
        else:
            outcome.set_result((result, error))
