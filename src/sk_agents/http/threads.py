"""Blocking foreign code, off the event loop.

The threads are daemons of our own, not the loop's: code that never returns must neither use up
the threads others need nor keep the process from ending. A stuck call keeps its slot; when all
slots are taken, further calls wait for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DaemonThreads:
    """At most `slots` calls at once, each in a thread of its own."""

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)

    async def run(self, call: Callable[[str], T], argument: str) -> T:
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def finish(result: T | None, error: BaseException | None) -> None:
            self._slots.release()
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # T itself may be optional

        def work() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = context.run(call, argument)
            except StopIteration:
                # A future cannot carry it.
                error = RuntimeError("the call raised StopIteration")
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                loop.call_soon_threadsafe(finish, result, error)

        threading.Thread(target=work, name="blocking-call", daemon=True).start()
        return await future
