"""Does something to one of a fleet's instances every second: kills it, or stops it for a while.

An instance that is just starting is left alone, or a slow machine would never have one at work.
"""

from __future__ import annotations

import asyncio
import math
import random
from pathlib import Path

from tests.chaos.fleet import Fleet, Member

PERIOD = 1.0
SHORTEST_STOP, LONGEST_STOP = 0.2, 30.0


class Nemesis:
    def __init__(self, fleet: Fleet, chance: random.Random) -> None:
        self._fleet = fleet
        self._chance = chance

    async def rage(self, seconds: float) -> None:
        """Returns after so many seconds, with every instance at work again."""
        for _ in range(int(seconds / PERIOD)):
            await asyncio.sleep(PERIOD)
            await self._strike(self._chance.choice(self._fleet.members))
        await self._fleet.heal()

    async def _strike(self, member: Member) -> None:
        dice = self._chance.random()
        length = self._stop_length()
        if member.is_starting:
            return
        if member.is_stopped:
            # A process that never goes on is as good a surprise as one that goes on late.
            if dice < 0.3:
                member.kill()
        elif dice < 0.5:
            member.kill()
        else:
            member.stop(length)
            await stopped(member)
            self._fleet.note_held_locks(member)

    def _stop_length(self) -> float:
        """Short ones often, long ones seldom: each order of magnitude gets its share."""
        low, high = math.log(SHORTEST_STOP), math.log(LONGEST_STOP)
        return math.exp(self._chance.uniform(low, high))


async def stopped(member: Member) -> None:
    """Once SIGSTOP has taken effect, or its time is over already."""
    while member.is_stopped and _state(member.server.pid) not in "TZX":  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
