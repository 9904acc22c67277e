"""Real time: aware for people, only growing for leases."""

from datetime import timedelta

from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.ports import Clock

CLOCK: Clock = SystemClock()


def test_wall_time_is_aware_and_utc() -> None:
    assert CLOCK.now().utcoffset() == timedelta(0)


def test_lease_time_never_goes_back() -> None:
    readings = [CLOCK.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)
