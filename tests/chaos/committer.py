"""A process that commits as fast as it can and says so, line by line, until it is killed.

Usage: python -m tests.chaos.committer URL PREFIX
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sk_agents.engine.events import RunStarted, Thinking
from sk_agents.engine.log.commits import Absent, Claim, Commit, Owned
from sk_agents.engine.models import NewThread, Part, UserInput
from sk_agents.engine.ports import Store
from sk_agents.persistence.store_factory import open_store
from tests.chaos.in_place_store import InPlaceStore

THREADS = 4
OWNER = "committer"


def content(thread_id: str, number: int) -> str:
    """What commit `number` of a thread says; long enough that a kill lands inside a write."""
    return f"{thread_id}:{number}:" + "é" * (number * 7919 % 40_000)


def opened(url: str) -> Store:
    """The store, or, under `in-place:`, the broken build that must be found out."""
    scheme, _, place = url.partition("://")
    return InPlaceStore(Path(place)) if scheme == "in-place" else open_store(url)


async def write(url: str, prefix: str) -> None:
    async with opened(url) as store:
        await asyncio.gather(*(_fill(store, f"{prefix}-{n}") for n in range(THREADS)))


async def _fill(store: Store, thread_id: str) -> None:
    started = RunStarted(
        run_id=f"run-{thread_id}", message=UserInput(parts=(Part(content=content(thread_id, 0)),))
    )
    new = Absent(NewThread("dummyuser", wire_id=thread_id))
    done = await store.commit(Commit(thread_id, "c0", new, (started,), Claim(OWNER)))
    sys.stdout.write(f"{thread_id} 0\n")
    for number in range(1, 100_000):
        said = Thinking(run_id=started.run_id, round=1, content=content(thread_id, number))
        guard = Owned(OWNER, done.thread.epoch)
        await store.commit(Commit(thread_id, f"c{number}", guard, (said,)))
        sys.stdout.write(f"{thread_id} {number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write(*sys.argv[1:3]))
