"""How long to wait before the next try, and when to stop trying."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sk_agents.client.errors import ClientError

logger = logging.getLogger(__name__)

GIVE_UP_AFTER = 60.0
FIRST_WAIT = 0.25
LONGEST_WAIT = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """What waiting needs from outside, so that tests neither wait nor throw dice."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class Patience:
    """The tries at one thing. Time counts from the first failure after the last sign of life.

    A sign of life starts the time anew. Only progress, or life that has lasted, also shortens the
    waits again: a server that answers and falls over at once is not asked in a tight loop.
    """

    def __init__(self, give_up_after: float, pace: Pace) -> None:
        self._give_up_after = give_up_after
        self._pace = pace
        self._tries = 0
        self._tried_at = 0.0
        self._lost_at: float | None = None

    def note_life(self) -> None:
        self._lost_at = None
        if self._pace.monotonic() - self._tried_at > LONGEST_WAIT:
            self._tries = 0

    def note_progress(self) -> None:
        self._lost_at = None
        self._tries = 0

    async def wait(self, failure: ClientError, *, at_least: float = 0.0) -> None:
        """Wait before the next try.

        Raises:
            ClientError: `failure` itself, at once: another try would not help, or would come later
                than anybody waits.
        """
        if not failure.is_passing:
            raise failure
        now = self._pace.monotonic()
        if self._lost_at is None:
            self._lost_at = now
        delay = self._delay(max(at_least, failure.retry_after or 0.0))
        if now - self._lost_at + delay > self._give_up_after:
            raise failure
        # A server that is not there at all should not look like one that is slow.
        level = logging.WARNING if self._tries == 1 else logging.DEBUG
        logger.log(level, "trying the server again", extra={"reason": str(failure)})
        self._tries += 1
        await self._pace.sleep(delay)
        self._tried_at = self._pace.monotonic()

    def _delay(self, at_least: float) -> float:
        growing = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(self._tries, 16))
        jittered = growing * (0.5 + 0.5 * self._pace.chance())
        # The jitter comes on top: all who were told the same moment must not return in it.
        return at_least + jittered * 0.25 if at_least > 0 else jittered
