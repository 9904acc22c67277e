"""An event loop with virtual time and a seeded scheduler, for several processes at once.

A `Process` stands for one operating system process: its callbacks run in the order in which they
were registered, as asyncio promises, while the loop picks at random which process runs next. The
process of a callback is found in its context, so that every task, timer and future of a process
belongs to it without being told. A stalled process keeps its callbacks, a dead one loses them.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Literal

# Enough for every history of a plan; past it a process spins without time going on.
MAX_STEPS = 3_000_000


class Deadlock(Exception):
    """Every process waits, and no timer is set."""


class Livelock(Exception):
    """The processes are busy without end."""


class Process:
    """`skew` is how far its wall clock is from the world's, in seconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: Literal["running", "stalled", "dead"] = "running"
        self.skew = 0.0
        self.ready: deque[asyncio.Handle] = deque()
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)
        # Called when it dies: its threads end, then what it held is let go of, as the operating
        # system would do.
        self.at_death: list[Callable[[], None]] = []
        self.held: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return self.name


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.steps = 0
        self.world = Process("world")
        self._now = 0.0
        self._runnable: list[Process] = []
        self._scheduled: list[asyncio.TimerHandle] = []
        # What no task handles: a mistake of the code under test.
        self.unhandled: list[str] = []
        # Every task to the end of the history: a dead process's code must not run when Python
        # throws its coroutines away.
        self.kept: list[asyncio.Task[Any]] = []
        self.set_exception_handler(self._note)
        self.set_task_factory(self._keep)

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]  # typed by its arguments there
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._make_ready(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # as above

    def stall(self, process: Process) -> None:
        if process.state == "running":
            process.state = "stalled"
            self._park(process)

    def wake(self, process: Process) -> None:
        if process.state == "stalled":
            process.state = "running"
            if process.ready:
                self._runnable.append(process)

    def kill(self, process: Process) -> None:
        if process.state == "dead":
            return
        self._park(process)
        process.state = "dead"
        process.ready.clear()
        for end in process.at_death:
            end()
        for release in process.held:
            release()

    def _park(self, process: Process) -> None:
        if process in self._runnable:
            self._runnable.remove(process)

    def _make_ready(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS) or self.world  # type: ignore[attr-defined]
        if process.state == "dead":
            return
        if not process.ready and process.state == "running":
            self._runnable.append(process)
        process.ready.append(handle)

    def _run_once(self) -> None:
        runnable = self._runnable
        if not runnable:
            self._advance()
            return
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Livelock(f"{MAX_STEPS} steps, {self._now:.3f} s")
        at = int(self.random.random() * len(runnable)) if len(runnable) > 1 else 0
        process = runnable[at]
        handle = process.ready.popleft()
        if not process.ready:
            runnable[at] = runnable[-1]
            runnable.pop()
        if not handle.cancelled():
            handle._run()

    def _advance(self) -> None:
        """Let time go on to the next timer."""
        if self._stopping:  # type: ignore[attr-defined]
            return
        timers = self._scheduled
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
        if not timers:
            raise Deadlock(f"{self._now:.3f} s")
        self._now = max(self._now, timers[0].when())
        while timers and timers[0].when() <= self._now:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            if not timer.cancelled():
                self._make_ready(timer)

    def _keep(
        self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        self.kept.append(task)
        return task

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.unhandled.append(f"{context.get('message')}: {error!r}")

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("a virtual loop has no input")

    def _write_to_self(self) -> None:
        return None
