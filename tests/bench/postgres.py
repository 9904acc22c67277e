"""The server on PostgreSQL beside the same on SQLite, both syncing each commit to the same disk.

The database runs where the model and the load do. How the store grows is measured on the store
itself: commits a second with few rows beside many.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import psycopg
import uvloop

from sk_agents.cli.garbage_collection import collect_rarely
from sk_agents.persistence.postgres.store import PostgresStore
from sk_agents.signals.messages import MessageSignals
from sk_agents.signals.postgres import PostgresMessages
from tests.bench.chats import OURS, Row, our_server, row
from tests.bench.group_commit import grouped
from tests.bench.model_client import model_process
from tests.bench.report import Ratio, Report
from tests.postgres import PostgresServer

WRITERS = 64
# Rows that look like those of a store, of as many threads with ten events each.
FILL = (
    """
    INSERT INTO teal_thread (
        thread_id, user_id, surface, session_id, version, owner, runnable, updated_at, head,
        checksum
    )
    SELECT 'filled-' || n, 'user-' || n %% 1000, '', '', 1, NULL, false, now(),
        convert_to(repeat('x', 600), 'UTF8'), 0
    FROM generate_series(1, %(threads)s) AS n
    """,
    """
    INSERT INTO teal_record (thread_no, first_seq, commit_id, body, checksum)
    SELECT no, seq, 'c' || seq, convert_to(repeat('x', 300), 'UTF8'), 0
    FROM teal_thread, generate_series(1, 10) AS seq WHERE thread_id LIKE 'filled-%%'
    """,
    """
    INSERT INTO teal_entry (kind, key, thread_no, user_id, run_id, open)
    SELECT 'run', thread_id, no, user_id, thread_id, false
    FROM teal_thread WHERE thread_id LIKE 'filled-%%'
    """,
)


def measure(
    conversations: int = 64,
    turns: int = 20,
    repetitions: int = 5,
    threads: int = 100_000,
    commits: int = 6_400,
    events: int = 10_000,
) -> Report:
    pairs: list[tuple[Row, Row]] = []
    lines: list[str] = []
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        PostgresServer(settings="", parent=Path.cwd()) as server,
        model_process() as url,
    ):
        for number in range(repetitions):
            place = Path(folder) / str(number)
            with our_server(f"{url}/burst", place) as ours:
                sqlite = row(ours.address, ours.pid, OURS, conversations, turns)
            with our_server(f"{url}/burst", place, server.url()) as ours:
                postgres = row(ours.address, ours.pid, OURS, conversations, turns)
            pairs.append((sqlite, postgres))
            lines.append(f"  sqlite {cells(sqlite)}   postgresql {cells(postgres)}")
        late, grown, told = uvloop.run(_store(server.url(), threads, commits, repetitions, events))
    return Report(
        f"PostgreSQL beside SQLite: 32 tokens a turn, {conversations} conversations",
        [*lines, f"  a notification reaches another instance in {told * 1e3:.1f} ms (median)"],
        [
            Ratio("turns/s, PostgreSQL / SQLite", median_ratio(pairs, "turns_per_second"), 0.9),
            Ratio("one turn alone, PostgreSQL / SQLite", median_ratio(pairs, "alone"), 1.5, False),
            Ratio("commits/s, first / 10,000th event of a thread", late, 1.3, at_least=False),
            Ratio(f"commits/s, empty / with {10 * threads:,} events", grown, 1.3, at_least=False),
            Ratio("ms from a notification to its reader", told * 1e3, 20, at_least=False),
        ],
    )


def median_ratio(pairs: list[tuple[Row, Row]], field: str) -> float:
    found = (getattr(postgres, field) / getattr(sqlite, field) for sqlite, postgres in pairs)
    return float(statistics.median(found))


def cells(found: Row) -> str:
    return (
        f"{found.turns_per_second:7.0f} turns/s {found.cpu * 1e3:6.3f} ms CPU"
        f" {found.alone * 1e3:6.2f} ms alone"
    )


async def _store(
    url: str, threads: int, commits: int, repetitions: int, events: int
) -> tuple[float, float, float]:
    """How much slower late events and a full store are, and the way of a notification."""
    collect_rarely()
    async with PostgresStore(url) as store:
        first = await grouped(store, 1, 300, "short")
        # Of one thread: what it takes on average until its 10,000th event, and so at the end too.
        whole = await grouped(store, 1, events, "long")
        empty = [
            await grouped(store, WRITERS, commits, f"empty-{number}")
            for number in range(repetitions)
        ]
        await asyncio.to_thread(_fill, url, threads)
        full = [
            await grouped(store, WRITERS, commits, f"full-{number}")
            for number in range(repetitions)
        ]
    told = await _notification_seconds(url)
    return first / whole, statistics.median(empty) / statistics.median(full), told


def _fill(url: str, threads: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in FILL:
            connection.execute(statement, {"threads": threads})
        # What the database would do a while later must not fall into what is measured.
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


async def _notification_seconds(url: str, times: int = 50) -> float:
    found: list[float] = []
    async with PostgresMessages(url) as one, PostgresMessages(url) as other:
        here, there = MessageSignals(one), MessageSignals(other)
        async with there.subscribe("t") as changes:
            for _ in range(times):
                begin = time.perf_counter()
                here.notify("t")
                await changes.wait(5)
                found.append(time.perf_counter() - begin)
                await asyncio.sleep(0.05)
    return statistics.median(found)
