"""Watches the event loop: what holds it up is logged with the place in the code where it happens.

A thread asks the loop for a sign of life again and again. A late sign means that one step of one
request, run or library makes all others wait; or that the machine is overloaded, which is not
counted where the system measures it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from typing import Self

logger = logging.getLogger(__name__)

# So many times within the bound the loop is asked: a hold that is longer by that part is never
# missed, and one that is shorter than the bound never reported.
LOOKS = 2
# A server that is held up again and again says so this often.
REPORT_SECONDS = 10.0
MOST_FRAMES = 12
_LOOP_FILES = ("asyncio/runners.py", "asyncio/base_events.py", "asyncio/events.py")
CLOSING_SECONDS = 1.0


class LoopWatchdog:
    """`async with` it on the loop it watches. `held` is called with the time of each hold."""

    def __init__(
        self,
        seconds: float,
        held: Callable[[float], None] | None = None,
        *,
        report_seconds: float = REPORT_SECONDS,
    ) -> None:
        self._seconds = seconds
        self._held = held
        self._report_seconds = report_seconds
        self._last_report = float("-inf")
        self._unreported = 0
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        self._thread = threading.Thread(
            target=self._watch,
            args=(asyncio.get_running_loop(), _Watched()),
            name="loop-watchdog",
            daemon=True,
        )
        self._thread.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._has_ended.set()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    def _watch(self, loop: asyncio.AbstractEventLoop, watched: _Watched) -> None:
        with closing(watched):
            self._look_until_ended(loop, watched)

    def _look_until_ended(self, loop: asyncio.AbstractEventLoop, watched: _Watched) -> None:
        while not self._has_ended.wait(self._seconds / LOOKS):
            sign, asked = threading.Event(), watched.working_time()
            try:
                loop.call_soon_threadsafe(sign.set)
            except RuntimeError:
                # The loop is closed.
                return
            held = reported = 0.0
            while not sign.wait(self._seconds / LOOKS) and not self._has_ended.is_set():
                # The system counts a delay when it is over, so what is left may shrink once more.
                held = max(held, watched.working_time() - asked)
                if not reported and held >= self._seconds:
                    reported = held
                    if stack := watched.stack():
                        self._report(held, stack)
            if reported and self._held is not None:
                self._held(max(held, watched.working_time() - asked))

    def _report(self, seconds: float, stack: str) -> None:
        now = monotonic()
        if now - self._last_report < self._report_seconds:
            self._unreported += 1
            return
        logger.warning(
            "the event loop is held up",
            extra={
                "held_ms": round(seconds * 1000),
                "unreported": self._unreported,
                "stack": stack,
            },
        )
        self._last_report, self._unreported = now, 0


class _Watched:
    """The thread that makes this.

    Its schedule stays open: a look then is one call of the system instead of five. After each the
    watching thread asks for the interpreter's lock, which the busy loop has to hand over.
    """

    def __init__(self) -> None:
        self._thread_id = threading.get_ident()
        self._schedule = -1
        with suppress(OSError):  # not Linux
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._schedule = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        if self._schedule >= 0:
            os.close(self._schedule)

    def working_time(self) -> float:
        """A clock that stands still while the thread could run and has no processor to run on."""
        return monotonic() - self._delay()

    def stack(self) -> str:
        """Where it is below the loop now, the innermost call last; empty if it is back in it."""
        frame = sys._current_frames().get(self._thread_id)
        frames = traceback.extract_stack(frame) if frame is not None else []
        loops = [at for at, one in enumerate(frames) if one.filename.endswith(_LOOP_FILES)]
        below = frames[loops[-1] + 1 :] if loops else frames
        return " > ".join(
            f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in below[-MOST_FRAMES:]
        )

    def _delay(self) -> float:
        if self._schedule < 0:
            return 0.0
        try:
            return int(os.pread(self._schedule, 64, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            # A Linux without these numbers.
            return 0.0
