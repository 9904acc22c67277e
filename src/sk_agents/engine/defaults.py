"""The ports an engine has unless it is given others: real time, random ids, no observer,
no budget, no audit, no copies.

Tests hand in a clock they can set and ids they know.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import UTC, datetime

from sk_agents.engine.events import Event, Noted
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import Thread, ToolCall, Usage
from sk_agents.engine.ports import Reservation, Spender

# Boot time is one for all processes of a host, goes on while a laptop sleeps and does not move
# when the wall clock is set.
_LEASE_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

# Random bytes of ids are drawn for so many at a time: asking the system takes a system call, and
# lets other threads run first.
DRAWN = 256
# Of all instances together, each taken once: taking one from a list cannot be interrupted.
_unused: list[bytes] = []


class SystemClock:
    """Wall time for people, boot time for leases."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_LEASE_CLOCK)


class RandomIds:
    def new(self) -> str:
        """A UUID of version 4."""
        try:
            random = _unused.pop()
        except IndexError:
            random = _draw()
        text = random.hex()
        variant = "89ab"[random[8] >> 6]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def _draw() -> bytes:
    """One, and others for later."""
    drawn = os.urandom(16 * DRAWN)
    _unused.extend(drawn[at : at + 16] for at in range(16, len(drawn), 16))
    return drawn[:16]


# A child of this process would make the same ids.
os.register_at_fork(after_in_child=_unused.clear)


def _ignore(*values: object) -> None:
    pass


# They hold nothing, so that one serves all, also at the same time.
_BLOCK: AbstractContextManager[None] = nullcontext()
_BLOCK_WITH_REPORT: AbstractContextManager[Callable[..., None]] = nullcontext(_ignore)


class NoObserver:
    def trace(self) -> str | None:
        return None

    def correlation_id(self) -> str | None:
        return None

    def stored(self, thread: Thread, state: ThreadState, events: Sequence[Event]) -> None:
        pass

    def recovered(self) -> None:
        pass

    def driving(self, thread: Thread, state: ThreadState) -> AbstractContextManager[None]:
        return _BLOCK

    def model_call(
        self, thread: Thread, run: Run, agent: str, round_number: int
    ) -> AbstractContextManager[Callable[[Usage, str, str | None], None]]:
        return _BLOCK_WITH_REPORT

    def tool_call(
        self, thread: Thread, run: Run, agent: str, call: ToolCall
    ) -> AbstractContextManager[Callable[[str], None]]:
        return _BLOCK_WITH_REPORT


class NoAudit:
    async def note(self, *notes: Noted) -> None:
        pass

    def count(self, note: Noted) -> None:
        pass

    async def keep_calls(self, thread: Thread, events: Sequence[Event]) -> None:
        pass

    async def deleting(self, thread: Thread, *, who: str | None, reason: str) -> None:
        pass


class NoCopies:
    def stored(self, thread: Thread, events: Sequence[Event]) -> None:
        pass

    def removing(self, thread: Thread) -> AbstractAsyncContextManager[None]:
        return nullcontext()


class NoBudget:
    async def admit(self, spender: Spender) -> None:
        pass

    async def reserve(self, spender: Spender, estimate: Usage) -> Reservation:
        return Reservation(spender)

    async def settle(self, reservation: Reservation, usage: Usage) -> str | None:
        return None

    async def admit_calls(self, spender: Spender, wanted: int) -> int:
        return wanted
