"""CPU of a streamed turn of 32 tokens in the engine, beside a proxy that syncs twice.

The limit includes its HTTP server, the engine has none here. Each is a process of its own, alone on
one core; the model and the load are on the other.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop

from tests.bench.cores import on_one_core
from tests.bench.model_client import model_process
from tests.bench.report import Ratio, Report


@contextmanager
def limit_server(model_url: str, database: Path) -> Iterator[tuple[str, int]]:
    """Its address and its pid."""
    command = [
        *(sys.executable, "-m", "tests.bench.limit_server"),
        *(f"{model_url}/chat/completions", str(database)),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=on_one_core
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}", process.pid
        finally:
            process.terminate()


def cpu_seconds(pid: int) -> float:
    """Of all its threads, to the nanosecond: ticks would be too coarse for a short run."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


async def load(address: str, conversations: int, turns: int) -> None:
    body = orjson.dumps({"user_message": "What does it depend on?"})

    async def converse(session: aiohttp.ClientSession, number: int) -> None:
        for _ in range(turns):
            async with session.post(f"{address}/chat{number}", data=body) as response:
                await response.read()

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(converse(session, number) for number in range(conversations)))


def limit_cpu(model_url: str, database: Path, conversations: int, turns: int) -> float:
    """CPU seconds a turn, after a turn each to warm up."""
    with limit_server(model_url, database) as (address, pid):
        uvloop.run(load(address, conversations, 1))
        before = cpu_seconds(pid)
        uvloop.run(load(address, conversations, turns))
        return (cpu_seconds(pid) - before) / (conversations * turns)


def engine_phases(
    model_url: str, database: Path, conversations: int, phases: list[int]
) -> list[dict[str, Any]]:
    """What the engine reports after each phase of so many turns a conversation."""
    command = [
        *(sys.executable, "-m", "tests.bench.engine_turns", model_url),
        *(str(database), str(conversations), *map(str, phases)),
    ]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=on_one_core
    )
    return [orjson.loads(line) for line in done.stdout.splitlines()]


def engine_cpu(model_url: str, database: Path, conversations: int, turns: int) -> float:
    _, measured = engine_phases(model_url, database, conversations, [1, turns])
    return float(measured["cpu"] / measured["turns"])


def measure(
    conversations: int = 64, turns: int = 20, repetitions: int = 5, crowd: int = 4_000
) -> Report:
    ratios: dict[str, list[float]] = {"burst": [], "paced": []}
    lines = []
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        model_process() as url,
    ):
        for number in range(repetitions):
            for pace, found in ratios.items():
                place = Path(folder) / f"{pace}-{number}"
                model_url = f"{url}/{pace}"
                limit = limit_cpu(model_url, place.with_suffix(".limit"), conversations, turns)
                ours = engine_cpu(model_url, place.with_suffix(".engine"), conversations, turns)
                lines.append(
                    f"  {pace:<6} limit {limit * 1e3:6.3f} ms   engine {ours * 1e3:6.3f} ms"
                )
                found.append(ours / limit)
        late = _long_conversation(url, Path(folder), repetitions)
        grown = _megabytes_grown(url, Path(folder), crowd)
    return Report(
        f"CPU of a streamed turn of 32 tokens, {conversations} conversations",
        lines,
        [
            Ratio("engine / limit", statistics.median(ratios["burst"]), 1.0, at_least=False),
            Ratio("engine / limit, 10 ms a token", statistics.median(ratios["paced"]), 1.5, False),
            Ratio("one conversation: turn 200 / turn 15", late, 1.2, at_least=False),
            Ratio(f"MB grown by {5 * crowd:,} turns of {crowd:,} conversations", grown, 40, False),
        ],
    )


def _long_conversation(url: str, folder: Path, repetitions: int) -> float:
    """CPU around turn 200 beside that around turn 15, of 4 conversations at once."""
    found = []
    for number in range(repetitions):
        database = folder / f"long-{number}.engine"
        phases = engine_phases(f"{url}/burst", database, 4, [5, 20, 165, 20])
        early, late = phases[1]["cpu"], phases[3]["cpu"]
        found.append(late / early)
    return float(statistics.median(found))


def _megabytes_grown(url: str, folder: Path, crowd: int) -> float:
    idle, busy = engine_phases(f"{url}/burst", folder / "crowd.engine", crowd, [0, 5])
    return float(busy["kilobytes"] - idle["kilobytes"]) / 1024
