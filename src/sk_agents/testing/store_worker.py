"""One of several processes that use a store at once; started by `SharedStoreContract`.

It opens the store (with the encryption keys of the environment, if there are any), says `ready`,
waits for a line, does its work and prints how much it did.
"""

from __future__ import annotations

import asyncio
import sys

from sk_agents.config.settings import Settings
from sk_agents.engine.ports import Count, Store
from sk_agents.exceptions import ApprovalAlreadyDecided, CounterFull, SequenceConflict
from sk_agents.persistence.store_factory import open_store
from sk_agents.testing.commits import append, decide, thought
from sk_agents.wiring import store_codec

TRIES = 10_000
# In seconds: the clock of the test may be years away from this process's.
CENTURY = 3.2e9


async def decide_all(store: Store, count: int, name: str) -> int:
    """Try to decide every approval; how many decisions were this process's."""
    won = 0
    for number in range(count):
        try:
            await store.commit(decide(f"t{number // 10}", f"a{number}", decided_by=name))
        except ApprovalAlreadyDecided:
            continue
        won += 1
    return won


async def append_all(store: Store, count: int, name: str) -> int:
    """Append to one thread, each time trying until it is stored."""
    for number in range(count):
        await append_until_stored(store, "t", f"{name}.{number}")
    return count


async def append_until_stored(store: Store, thread_id: str, text: str) -> None:
    """Append to the log as it then is."""
    for _ in range(TRIES):
        head = await store.thread(thread_id)
        try:
            await store.commit(append(head, thought(text)))
            return
        except SequenceConflict:
            continue
    raise AssertionError("never stored")


async def count_all(store: Store, count: int, name: str) -> int:
    """Add to two counters until one of them is full; how often this process could."""
    added = 0
    while True:
        try:
            await store.count([Count("steps", 1, CENTURY), Count("full", 1, CENTURY, count)])
        except CounterFull:
            return added
        added += 1


WORK = {"decide": decide_all, "append": append_all, "count": count_all}


async def main(work: str, url: str, count: str, name: str) -> None:
    async with open_store(url, codec=store_codec(Settings())) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        done = await WORK[work](store, int(count), name)
    sys.stdout.write(f"{done}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
