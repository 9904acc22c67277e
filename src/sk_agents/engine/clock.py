"""Real time. Everything that needs time gets a `Clock`; tests hand in one they can set."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """Wall time for people, boot time for leases.

    Boot time is one for all processes of a host, goes on while a laptop sleeps and is not moved
    by anybody who sets the wall clock.
    """

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(_LEASE_CLOCK)


_LEASE_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
