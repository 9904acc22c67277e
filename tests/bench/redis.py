"""The server on Valkey beside the same on SQLite, both syncing each commit to the same disk.

The server of the store runs where the model and the load do. What a turn costs it is counted by
itself.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from sk_agents.signals.messages import MessageSignals
from sk_agents.signals.redis import RedisMessages
from tests.bench.chats import OURS, Row, our_server, row
from tests.bench.model_client import model_process
from tests.bench.postgres import cells, median_ratio
from tests.bench.report import Ratio, Report
from tests.valkey import ValkeyServer

SYNCING = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
# What the store and the signals send themselves; other commands are called by scripts alone.
SENT = ("evalsha", "publish", "get", "hmget", "zrange")


def measure(conversations: int = 64, turns: int = 20, repetitions: int = 5) -> Report:
    pairs: list[tuple[Row, Row]] = []
    lines: list[str] = []
    counts: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        ValkeyServer(*SYNCING, parent=Path(folder)) as server,
        model_process() as url,
    ):
        for number in range(repetitions):
            place = Path(folder) / str(number)
            with our_server(f"{url}/burst", place) as ours:
                sqlite = row(ours.address, ours.pid, OURS, conversations, turns)
            with our_server(f"{url}/burst", place, server.url()) as ours:
                with server.client() as client:
                    client.config_resetstat()
                redis = row(ours.address, ours.pid, OURS, conversations, turns)
                counts = operations(server, conversations * (turns + 1) + max(turns, 30))
            pairs.append((sqlite, redis))
            lines.append(f"  sqlite {cells(sqlite)}   redis {cells(redis)}")
        told = uvloop.run(_notification_seconds(server.url()))
    shares = ", ".join(f"{name} {count:.2f}" for name, count in counts.items())
    return Report(
        f"Redis beside SQLite: 32 tokens a turn, {conversations} conversations",
        [
            *lines,
            f"  commands a turn: {shares}",
            f"  a notification reaches another instance in {told * 1e3:.1f} ms (median)",
        ],
        [
            Ratio("turns/s, Redis / SQLite", median_ratio(pairs, "turns_per_second"), 0.6),
            Ratio("one turn alone, Redis / SQLite", median_ratio(pairs, "alone"), 1.5, False),
            Ratio("ms from a notification to its reader", told * 1e3, 20, at_least=False),
        ],
    )


def operations(server: ValkeyServer, turns: int) -> dict[str, float]:
    """How many commands of each kind a turn took, since the server began to count."""
    with server.client() as client:
        stats: Any = client.info("commandstats")
    return {name: stats.get(f"cmdstat_{name}", {}).get("calls", 0) / turns for name in SENT}


async def _notification_seconds(url: str, times: int = 50) -> float:
    found: list[float] = []
    async with RedisMessages(url) as one, RedisMessages(url) as other:
        here, there = MessageSignals(one), MessageSignals(other)
        async with there.subscribe("t") as changes:
            for _ in range(times):
                begin = time.perf_counter()
                here.notify("t")
                await changes.wait(5)
                found.append(time.perf_counter() - begin)
                await asyncio.sleep(0.02)
    return statistics.median(found)
