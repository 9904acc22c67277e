"""When to try a model again, and how long to wait before it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.ports import Clock
from sk_agents.exceptions import (
    ModelError,
    ModelInterrupted,
    ModelRateLimited,
    ModelUnavailable,
)

Sleep = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`attempts` counts the first one; `total_wait` bounds all of it, failed attempts included."""

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 20.0
    total_wait: float = 60.0


@dataclass(frozen=True, slots=True)
class Pace:
    """What waiting needs from outside, so that tests neither wait nor throw dice."""

    clock: Clock = SystemClock()
    sleep: Sleep = asyncio.sleep
    chance: Callable[[], float] = random.random


class Attempts:
    """The attempts at one request."""

    def __init__(self, policy: RetryPolicy, pace: Pace) -> None:
        self._policy = policy
        self._pace = pace
        self._begun = pace.clock.monotonic()
        self.made = 1

    async def may_repeat_after(self, failure: ModelError) -> bool:
        """Wait as long as politeness asks; False, without waiting, if that is out of bounds."""
        if self.made >= self._policy.attempts or not is_passing(failure):
            return False
        # A pooled connection that its other end had closed: the first repeat costs nothing.
        at_once = failure.attributes.get("dropped") and self.made == 1
        delay = 0.0 if at_once else self._delay(failure.attributes.get("retry_after"))
        passed = self._pace.clock.monotonic() - self._begun
        if passed + delay > self._policy.total_wait:
            return False
        self.made += 1
        if delay > 0:
            await self._pace.sleep(delay)
        return True

    def _delay(self, retry_after: float | None) -> float:
        policy = self._policy
        growing = min(policy.longest_wait, policy.first_wait * 2.0 ** (self.made - 1))
        jittered = growing * (0.5 + 0.5 * self._pace.chance())
        # The jitter comes on top: all who were told the same moment must not return in it.
        return jittered if retry_after is None else retry_after + jittered * 0.25


def is_passing(failure: ModelError) -> bool:
    """The same request may well succeed a moment later."""
    return isinstance(
        failure, ModelRateLimited | ModelUnavailable | ModelInterrupted
    ) and not failure.attributes.get("is_final")


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds from now; the header is a number or an HTTP date. Nonsense counts as absent."""
    if value is None or len(value) > 64:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - now).total_seconds()
    # NaN and infinity are numbers too.
    return max(0.0, seconds) if -1e9 < seconds < 1e9 else None
