"""The whole server over HTTP beside a proxy that syncs twice: `teal serve`, as users run it.

Each is a process of its own, alone on one core; the model and the load are on the other. The proxy
is a Starlette application; what it takes without Starlette is shown once, as `bare`, and judges
nothing.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
import yaml

from tests.bench.chat_load import Load, converse, hold
from tests.bench.cores import on_one_core
from tests.bench.model_client import model_process
from tests.bench.report import Ratio, Report
from tests.bench.turns import cpu_seconds, limit_server

OURS = "/chats/c{}/interactions"
LIMIT = "/c{}"
BARE = "/bare/c{}"
# Three budgets in four amounts that are never used up, and what they are counted by.
BUDGETED: dict[str, Any] = {
    "price": {"prompt": 1, "completion": 1},
    "budget": {
        "run": "1000 USD",
        "user": "1000 USD, 1000000000 tokens",
        "agent": "1000 USD",
    },
}


@dataclass(frozen=True, slots=True)
class Server:
    address: str
    pid: int
    started_in: float

    @property
    def kilobytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@contextmanager
def our_server(
    model_url: str, folder: Path, store: str | None = None, **agent: Any
) -> Iterator[Server]:
    """Two agents on this store, or on a SQLite file; `agent` is what both have beside a model."""
    folder.mkdir(exist_ok=True)
    files = [write_agent(folder, name, model_url, **agent) for name in ("one", "two")]
    command = [
        *(sys.executable, "-m", "sk_agents", "serve", *map(str, files), "--port", "0"),
        *("--store", store or f"sqlite:///{folder}/chats.sqlite", "--log-level", "warning"),
    ]
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=on_one_core
    ) as process:
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            address = next(word for word in ready.split() if word.startswith("http"))
            yield Server(address, process.pid, time.perf_counter() - began)
        finally:
            process.terminate()


def write_agent(folder: Path, name: str, model_url: str, **more: Any) -> Path:
    """`more` stands beside the agent's model."""
    agent = {"name": name, "model": "bench", "base_url": model_url, "system_prompt": "Answer."}
    agent |= more
    document = {
        "apiVersion": "tealagents/v1alpha1",
        "name": name,
        "version": "0.1",
        "spec": {"agent": agent},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@dataclass(frozen=True, slots=True)
class Row:
    """`alone` is the first token's median with one conversation, `first` with many."""

    turns_per_second: float
    cpu: float
    first: float
    alone: float


def row(address: str, pid: int, path: str, conversations: int, turns: int) -> Row:
    """After a turn each to warm up."""
    run(address, path, conversations, 1)
    before = cpu_seconds(pid)
    load = run(address, path, conversations, turns)
    cpu = (cpu_seconds(pid) - before) / load.turns
    alone = run(address, path, 1, max(turns, 30))
    return Row(
        load.turns / load.seconds,
        cpu,
        statistics.median(load.first_tokens),
        statistics.median(alone.first_tokens),
    )


def run(address: str, path: str, conversations: int, turns: int) -> Load:
    return uvloop.run(converse(address, path, conversations, turns))


def measure(
    conversations: int = 64, turns: int = 20, repetitions: int = 5, streams: int = 1000
) -> Report:
    plain: dict[str, list[tuple[Row, Row]]] = {"burst": [], "paced": []}
    budgeted: dict[str, list[tuple[Row, Row]]] = {"burst": [], "paced": []}
    lines, starts, idles = [], [], []
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        model_process() as url,
    ):
        for number in range(repetitions):
            for pace in plain:
                place = Path(folder) / f"{pace}-{number}"
                model_url = f"{url}/{pace}"
                with limit_server(model_url, place.with_suffix(".limit")) as (address, pid):
                    limit = row(address, pid, LIMIT, conversations, turns)
                with our_server(model_url, place) as server:
                    starts.append(server.started_in)
                    idles.append(server.kilobytes / 1024)
                    ours = row(server.address, server.pid, OURS, conversations, turns)
                with our_server(model_url, place.with_suffix(".budgets"), **BUDGETED) as server:
                    counted = row(server.address, server.pid, OURS, conversations, turns)
                lines.append(_line(pace, limit, ours))
                lines.append(f"  budgets {_cells('ours', counted)}")
                plain[pace].append((limit, ours))
                budgeted[pace].append((limit, counted))
        with limit_server(f"{url}/burst", Path(folder) / "bare") as (address, pid):
            lines.append(
                f"  bare   {_cells('limit', row(address, pid, BARE, conversations, turns))}"
            )
        held = _held_kilobytes(f"{url}/held", Path(folder) / "held", streams)
    return Report(
        f"The server beside the limit: 32 tokens a turn, {conversations} conversations",
        lines,
        [
            *_ratios(plain),
            *_ratios(budgeted, " with budgets"),
            Ratio("KB resident a held stream", held, 60, at_least=False),
        ]
        + [Ratio("seconds to start, two agents", statistics.median(starts), 0.7, at_least=False)]
        + [Ratio("MB resident when idle", statistics.median(idles), 75, at_least=False)],
    )


def _ratios(rows: dict[str, list[tuple[Row, Row]]], how: str = "") -> list[Ratio]:
    burst, paced = rows["burst"], rows["paced"]
    return [
        Ratio(f"turns/s{how}, ours / limit", _median(burst, "turns_per_second"), 0.65),
        Ratio(f"CPU a turn{how}, ours / limit", _median(burst, "cpu"), 1.55, at_least=False),
        Ratio(f"first token{how}, one conversation", _median(burst, "alone"), 1.5, at_least=False),
        Ratio(f"first token{how}, all of them", _median(burst, "first"), 1.5, at_least=False),
        Ratio(f"CPU a turn{how}, 10 ms a token", _median(paced, "cpu"), 1.5, at_least=False),
    ]


def _median(pairs: Sequence[tuple[Row, Row]], field: str) -> float:
    """Of ours to the limit's."""
    ratios = [getattr(ours, field) / getattr(limit, field) for limit, ours in pairs]
    return float(statistics.median(ratios))


def _held_kilobytes(model_url: str, folder: Path, streams: int) -> float:
    with our_server(model_url, folder) as server:
        before = server.kilobytes

        async def grown() -> float:
            held = await hold(server.address, OURS, streams)
            kilobytes = server.kilobytes - before
            # A loop that ends with open transports waits for them where warnings are errors.
            for transport in held:
                transport.close()
            await asyncio.sleep(0)
            return kilobytes / streams

        return uvloop.run(grown())


def _line(pace: str, limit: Row, ours: Row) -> str:
    return f"  {pace:<6} {_cells('limit', limit)}   {_cells('ours', ours)}"


def _cells(name: str, row: Row) -> str:
    return (
        f"{name} {row.turns_per_second:7.0f}/s {row.cpu * 1e3:6.3f} ms"
        f" first {row.alone * 1e3:5.2f}, {row.first * 1e3:6.2f} ms"
    )
