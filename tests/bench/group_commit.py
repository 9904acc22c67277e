"""Commits a second on SQLite with FULL sync, beside a bare loop of the same statements."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from sk_agents.cli.garbage_collection import collect_rarely
from sk_agents.engine.events import RunStarted, Thinking
from sk_agents.engine.log.commits import Absent, Claim, Commit, Owned
from sk_agents.engine.models import NewThread, Part, UserInput
from sk_agents.engine.ports import Store
from sk_agents.persistence.codec import PLAIN
from sk_agents.persistence.encoding import encode_events
from sk_agents.persistence.sqlite import rows
from sk_agents.persistence.sqlite.database import open_for_writing
from sk_agents.persistence.sqlite.store import SqliteStore
from tests.bench.cores import one_core
from tests.bench.report import Ratio, Report
from tests.stores.sqlite_faults import failing_disk

WRITERS = (1, 16, 64, 256)
TEXT = "the answer is that it depends on what was asked, " * 4


async def begin_thread(store: Store, thread_id: str) -> int:
    """A thread with a running run that `bench` owns; its epoch."""
    message = UserInput(parts=(Part(content="hello"),))
    started = RunStarted(run_id=f"run-{thread_id}", message=message)
    new = Absent(NewThread("alice"))
    done = await store.commit(Commit(thread_id, "begin", new, (started,), Claim("bench")))
    return done.thread.epoch


async def append(store: Store, thread_id: str, epoch: int, numbers: range) -> None:
    for number in numbers:
        event = Thinking(run_id=f"run-{thread_id}", round=1, content=TEXT)
        # The first event of the thread is its start, so commit `number` follows seq `number + 1`.
        guard = Owned("bench", epoch, next_seq=number + 2)
        await store.commit(Commit(thread_id, f"{number:032x}", guard, (event,)))


async def grouped(store: Store, writers: int, commits: int, name: str) -> float:
    """Commits a second of so many concurrent writers, each on a thread of its own."""
    ids = [f"{name}-{writers}-{number}" for number in range(writers)]
    epochs = await asyncio.gather(*(begin_thread(store, thread_id) for thread_id in ids))
    each = max(2, commits // writers)
    start = time.perf_counter()
    await asyncio.gather(
        *(append(store, *pair, range(each)) for pair in zip(ids, epochs, strict=True))
    )
    return writers * each / (time.perf_counter() - start)


def bare(path: Path, commits: int, name: str) -> float:
    """The statements of a commit and nothing else: no checks, no encoding, one sync each."""
    db = open_for_writing(path)
    stored = rows.known_thread(db, PLAIN, name)
    event = Thinking(run_id=f"run-{name}", round=1, content=TEXT)
    body = encode_events([event], stored.head.updated_at)
    start = time.perf_counter()
    for number in range(commits):
        db.execute("BEGIN IMMEDIATE")
        rows.insert_record(db, stored, 2 + number, f"{number:032x}", body)
        rows.update_head(db, stored, stored)
        db.execute("COMMIT")
    rate = commits / (time.perf_counter() - start)
    db.close()
    return rate


async def _round(path: Path, commits: int, name: str) -> dict[str, float]:
    async with SqliteStore(path) as store:
        await begin_thread(store, name)
    rates = {"bare": bare(path, max(50, commits // 4), name)}
    async with SqliteStore(path) as store:
        for writers in WRITERS:
            count = commits if writers > 1 else max(50, commits // 4)
            rates[str(writers)] = await grouped(store, writers, count, name)
    return rates


async def _commits_per_sync(folder: Path, commits: int) -> float:
    with failing_disk() as disk:
        async with SqliteStore(folder / "counted.sqlite") as store:
            before = disk.syncs
            await grouped(store, 64, commits, "counted")
            return commits / (disk.syncs - before)


def measure(commits: int = 6_000, repetitions: int = 7) -> Report:
    collect_rarely()
    with one_core(), tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        path = Path(folder) / "teal.sqlite"
        rounds = [
            uvloop.run(_round(path, commits, f"round-{number}")) for number in range(repetitions)
        ]
        per_sync = uvloop.run(_commits_per_sync(Path(folder), commits))

    def median(value: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(map(value, rounds))

    return Report(
        f"SQLite, WAL, FULL: commits/s (median of {repetitions})",
        [
            f"  {name + ' writers' if name != 'bare' else 'bare loop, same statements':<28}"
            f" {median(lambda rates, name=name: rates[name]):>9,.0f}"  # type: ignore[misc]
            for name in rounds[0]
        ],
        [
            Ratio("64 writers / bare loop", median(lambda r: r["64"] / r["bare"]), 3.0),
            Ratio("1 writer / bare loop", median(lambda r: r["1"] / r["bare"]), 0.6),
            Ratio("256 writers / 64 writers", median(lambda r: r["256"] / r["64"]), 0.7),
            Ratio("commits per sync at 64 writers", per_sync, 16),
        ],
    )
