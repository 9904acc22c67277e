"""Two workers beside one: what a turn costs over all processes, and what waiting costs one server.

The CPU of a turn is that of the supervisor and its workers, on as many cores as there are; if it is
the same with two as with one, more cores mean more turns. A part of what a second worker costs is
the machine's: two busy processes take each other's caches and cores. Two servers that share nothing
show how much, under the same load; they judge nothing. What waits should cost next to nothing: runs
that wait for a person, and streams on which nothing happens.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psycopg
import uvloop

from tests.bench.chat_load import Load, converse
from tests.bench.chats import OURS, write_agent
from tests.bench.model_client import model_process
from tests.bench.report import Ratio, Report
from tests.bench.turns import cpu_seconds
from tests.chaos.paced_model import PacedModel, write_paced_agent
from tests.postgres import PostgresServer

BAR = 1.15
# Of a core, by a server on which nothing happens.
IDLE_BAR = 0.05
AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Processes:
    """A supervisor and its workers, or a server alone."""

    address: str
    pid: int

    def _all(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    @property
    def cpu(self) -> float:
        return sum(map(cpu_seconds, self._all()))

    @property
    def megabytes(self) -> float:
        """As the kernel shares them out: what several processes have in common counts once."""
        texts = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self._all())
        lines = (line.split() for text in texts for line in text.splitlines()[1:])
        return sum(int(line[1]) for line in lines if line[0] == "Pss:") / 1024


@contextmanager
def processes(agent: Path, store: str, workers: int) -> Iterator[Processes]:
    command = [
        *(sys.executable, "-m", "sk_agents", "serve", str(agent), "--port", "0"),
        *("--store", store, "--workers", str(workers), "--log-level", "warning"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            address = next(word for word in ready.split() if word.startswith("http"))
            yield Processes(address, process.pid)
        finally:
            process.terminate()


@dataclass(frozen=True, slots=True)
class Turns:
    cpu: float
    per_second: float
    megabytes: float

    def __str__(self) -> str:
        return (
            f"{self.cpu * 1e3:6.3f} ms, {self.per_second:6.0f} a second, {self.megabytes:4.0f} MB"
        )


def turns_of(servers: Sequence[Processes], conversations: int, turns: int) -> Turns:
    """Of all servers, each with its part of the conversations, after a few turns each, which let
    every worker load what it needs. Twice: on their next connections some conversations are at the
    other worker, and the first thread that a worker reads takes it 17 ms."""

    async def talk(turns: int) -> list[Load]:
        each = conversations // len(servers)
        return await asyncio.gather(
            *(converse(server.address, OURS, each, turns) for server in servers)
        )

    uvloop.run(talk(2))
    uvloop.run(talk(1))
    before = sum(server.cpu for server in servers)
    loads = uvloop.run(talk(turns))
    done = sum(load.turns for load in loads)
    cpu = (sum(server.cpu for server in servers) - before) / done
    megabytes = sum(server.megabytes for server in servers)
    return Turns(cpu, done / max(load.seconds for load in loads), megabytes)


def measure(
    conversations: int = 64,
    turns: int = 20,
    repetitions: int = 5,
    runs: int = 5_000,
    streams: int = 500,
    idle_seconds: float = 20.0,
) -> Report:
    lines, ratios = [], []
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-"))
        )
        model = stack.enter_context(model_process())
        database = stack.enter_context(PostgresServer())
        agent = write_agent(folder, "one", f"{model}/burst")
        for kind in ("sqlite", "postgresql"):
            found, apart = [], []
            for number in range(repetitions):
                first, *others = (
                    _store(kind, folder, database, f"{number}{name}") for name in "abcd"
                )
                one = _turns(agent, [first], 1, conversations, turns)
                two = _turns(agent, others[:1], 2, conversations, turns)
                alone = _turns(agent, others[1:], 1, conversations, turns)
                lines.append(f"  {kind:<10}   one {one}   two {two}   two apart {alone}")
                found.append(two.cpu / one.cpu)
                apart.append(alone.cpu / one.cpu)
            lines.append(
                f"  {kind:<10}   two servers that share nothing / one:"
                f" {statistics.median(apart):.2f}"
            )
            name = f"CPU of a turn, two workers / one, {kind}"
            ratios.append(Ratio(name, statistics.median(found), BAR, at_least=False))
        waiting = _waiting(folder / "waiting", runs, streams, idle_seconds)
    lines.append(f"  {waiting}")
    ratios.append(Ratio("CPU of a core when idle", waiting.idle, IDLE_BAR, at_least=False))
    return Report(f"Workers: {conversations} conversations of {turns} turns", lines, ratios)


def _store(kind: str, folder: Path, database: PostgresServer, name: str) -> str:
    """An empty one: a turn of a longer conversation costs more."""
    if kind == "sqlite":
        return f"sqlite://{folder}/{name}.sqlite"
    with psycopg.connect(database.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE bench{name}".encode())
    return database.url(f"bench{name}")


def _turns(
    agent: Path, stores: Sequence[str], workers: int, conversations: int, turns: int
) -> Turns:
    """With a server for each of these stores."""
    with ExitStack() as stack:
        servers = [stack.enter_context(processes(agent, store, workers)) for store in stores]
        return turns_of(servers, conversations, turns)


@dataclass(frozen=True, slots=True)
class Waiting:
    runs: int
    streams: int
    empty: float
    megabytes: float
    idle: float

    def __str__(self) -> str:
        return (
            f"{self.runs:,} runs that wait and {self.streams} idle streams: "
            f"{self.megabytes - self.empty:.0f} MB more than the {self.empty:.0f} MB of an empty "
            f"server, {self.idle * 100:.1f} % of a core"
        )


def _waiting(folder: Path, runs: int, streams: int, idle_seconds: float) -> Waiting:
    async def fill() -> Waiting:
        async with PacedModel() as model:
            # No tool runs, so that nothing listens at the ledger's port.
            agent = write_paced_agent(folder / "helper", model, ledger_port=1)
            store = f"sqlite://{folder}/waiting.sqlite"
            with processes(agent, store, 1) as server:
                empty = server.megabytes
                await _begin(server.address, runs)
                async with AsyncExitStack() as stack:
                    connector = aiohttp.TCPConnector(limit=0)
                    http = await stack.enter_async_context(
                        aiohttp.ClientSession(connector=connector)
                    )
                    for number in range(streams):
                        path = f"{server.address}/chats/w{number}/events"
                        reading = http.get(path, timeout=aiohttp.ClientTimeout(total=None))
                        assert (await stack.enter_async_context(reading)).status == 200
                    await asyncio.sleep(1)
                    before, began = server.cpu, time.monotonic()
                    await asyncio.sleep(idle_seconds)
                    idle = (server.cpu - before) / (time.monotonic() - began)
                    return Waiting(runs, streams, empty, server.megabytes, idle)

    return asyncio.run(fill())


async def _begin(address: str, runs: int) -> None:
    """So many runs, each in a chat of its own, that wait for an approval."""
    numbers = iter(range(runs))

    async def begin(http: aiohttp.ClientSession) -> None:
        for number in numbers:
            body = {"user_message": f"m{number} sign", "session_id": f"w{number}"}
            async with http.post(f"{address}/chat", json=body) as answer:
                said = await answer.json()
                assert said["status"] == "Paused", said

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(begin(http) for _ in range(AT_ONCE)))
