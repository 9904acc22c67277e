"""Several instances at work on one store: commits, heartbeats, marks, claims, deletions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Store
from sk_agents.testing.commits import append, approval, create, run_ended, run_started, thought
from tests.crash_images.history import History

WRITERS = 3
# Of one sector, of several, of several pages.
SIZES = (20, 700, 3_000, 14_000)


async def work(
    stores: Sequence[Store], history: History, chance: random.Random, *, turns: int, name: str
) -> None:
    """Let every store have writers of its own, and signs of life between."""
    await asyncio.gather(
        *(
            _write(store, history, random.Random(chance.random()), turns, f"{name}-{number}-{n}")
            for number, store in enumerate(stores)
            for n in range(WRITERS)
        ),
        *(
            _live(store, random.Random(chance.random()), turns, f"{name}-{number}")
            for number, store in enumerate(stores)
        ),
    )


async def _write(
    store: Store, history: History, chance: random.Random, turns: int, name: str
) -> None:
    head: Thread | None = None
    for number in range(turns):
        run_id = f"run-{name}-{number}"
        text = chance.choice("abcdef") * chance.choice(SIZES)
        if head is None:
            thread_id = f"{name}-{number if chance.random() < 0.5 else 0}"
            head = await history.commit(store, create(thread_id, run_started(run_id, text)))
        elif head.next_seq > 6 and chance.random() < 0.5:
            await history.delete(store, head)
            head = None
        elif chance.random() < 0.2:
            await store.claim(head.thread_id, f"owner-{name}")
            await store.retire(f"owner-{name}")
            head = await history.commit(store, append(head, thought(text)))
        else:
            more = chance.choice(
                ([thought(text)], [thought(text), approval(f"approval-{run_id}")], [run_ended()])
            )
            head = await history.commit(store, append(head, *more))


async def _live(store: Store, chance: random.Random, turns: int, name: str) -> None:
    for number in range(turns):
        for _ in range(chance.randint(1, 4)):
            await asyncio.to_thread(store.renew, f"owner-{name}", 60)
        await store.mark_watched([f"run-{name}-{number}"])
        if number % 4 == 0:
            await store.ping()
