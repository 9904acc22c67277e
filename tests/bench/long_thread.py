"""CPU per commit late in a long thread, beside the same early in a short one."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from sk_agents.engine.ports import Store
from sk_agents.persistence.store_factory import open_store
from tests.bench.group_commit import append, begin_thread
from tests.bench.report import Ratio, Report

LATE = 10_000
BARS = {"sqlite": 1.2, "file": 2.0}


async def _cpu_per_commit(store: Store, thread_id: str, first: int, commits: int) -> float:
    epoch = (await store.thread(thread_id)).epoch
    start = time.process_time()
    await append(store, thread_id, epoch, range(first, first + commits))
    return (time.process_time() - start) / commits


async def _measure(url: str, late: int, commits: int, repetitions: int) -> tuple[float, float]:
    """Median CPU seconds per commit, early and late, measured in turns."""
    early_cost, late_cost = [], []
    async with open_store(url) as store:
        epoch = await begin_thread(store, "long")
        await append(store, "long", epoch, range(late))
        for number in range(repetitions):
            short = f"short-{number}"
            epoch = await begin_thread(store, short)
            await append(store, short, epoch, range(10))
            early_cost.append(await _cpu_per_commit(store, short, 10, commits))
            first = late + number * commits
            late_cost.append(await _cpu_per_commit(store, "long", first, commits))
    return statistics.median(early_cost), statistics.median(late_cost)


def measure(late: int = LATE, commits: int = 1_000, repetitions: int = 5) -> Report:
    lines, ratios = [], []
    for kind, bar in BARS.items():
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
            url = f"{kind}://{Path(folder) / 'store'}"
            early_cost, late_cost = asyncio.run(_measure(url, late, commits, repetitions))
        lines.append(
            f"  {kind:<8} event 10: {early_cost * 1e6:6.0f} us   "
            f"event {late:,}: {late_cost * 1e6:6.0f} us"
        )
        name = f"{kind}: CPU per commit at event {late:,} / at event 10"
        ratios.append(Ratio(name, late_cost / early_cost, bar, at_least=False))
    title = f"CPU per commit over {commits:,} commits (median of {repetitions})"
    return Report(title, lines, ratios)
