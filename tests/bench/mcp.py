"""A call of an MCP tool through the engine, beside the SDK's own call and two commits.

Compared are, in milliseconds of wall time and of this process's CPU (all its threads):

- *engine*: from the moment a call is durably proposed (`ToolProposed` is stored) to the moment its
  result is (`ToolFinished` is stored): the policy's verdict, the commit of `ToolStarted`, the call
  through our toolbox and connection, the commit of `ToolFinished`. The turn around it, with its two
  requests to a scripted model over HTTP, is not counted, and nobody reads along.
- *SDK*: `session.call_tool` of the `mcp` library over its own stdio transport, nothing of ours.
- *two commits*: the same two events, committed to the same kind of store (SQLite, FULL).

Both callers have the same server, in a process of its own each: one trusted, read-only tool. The
three take turns call by call in one process on one core, servers and model on the others. Of each
the tenth percentile of a round counts, and of the rounds the least: what it costs when nobody
disturbs it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import uvloop

from sk_agents.cli.garbage_collection import collect_rarely
from sk_agents.engine.agent import Agent
from sk_agents.engine.commands import StartRun
from sk_agents.engine.defaults import NoObserver, RandomIds, SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import Event, RunEnded, ToolFinished, ToolProposed, ToolStarted
from sk_agents.engine.log.commits import Commit, Owned
from sk_agents.engine.log.state import ThreadState
from sk_agents.engine.models import NewThread, Part, Thread, UserInput
from sk_agents.engine.ports import Store
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint
from sk_agents.persistence.liveness import new_owner
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.signals.local import LocalSignals
from tests.bench.cores import one_core
from tests.bench.group_commit import begin_thread
from tests.bench.report import Ratio, Report
from tests.tools.mcp_servers.running import friendly, running

TOOL = "mcp_friendly-echo"
ARGUMENTS = {"text": "What does it depend on?", "times": 1}
MESSAGE = UserInput(parts=(Part(content="Please say it again."),))
BAR_MS = 0.5
BAR_CPU = 1.6
WARM_UP = 20


class Cost(NamedTuple):
    """Milliseconds."""

    wall: float
    cpu: float


def now() -> Cost:
    return Cost(time.perf_counter() * 1e3, time.process_time() * 1e3)


def since(start: Cost) -> Cost:
    end = now()
    return Cost(end.wall - start.wall, end.cpu - start.cpu)


def low(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=10, method="inclusive")[0]


Step = Callable[[], Awaitable[Cost]]


class Stopwatch(NoObserver):
    """What the call of the run under way has cost."""

    def __init__(self) -> None:
        self._start, self.cost = now(), Cost(0, 0)
        self.ended = asyncio.Event()

    def stored(self, thread: Thread, state: ThreadState, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case ToolProposed():
                    self._start = now()
                case ToolFinished():
                    self.cost = since(self._start)
                    assert event.outcome == "ok", event.result
                case RunEnded():
                    self.ended.set()


@asynccontextmanager
async def through_engine(folder: Path, model_url: str) -> AsyncIterator[Step]:
    watch = Stopwatch()
    async with AsyncExitStack() as stack:
        server = friendly(folder, trust_level="trusted")
        at = await stack.enter_async_context(running(folder, server))
        clients = await stack.enter_async_context(ModelClients())
        store = await stack.enter_async_context(SqliteStore(folder / "engine.sqlite"))
        policy = ApprovalPolicy(declared=at.box.requires_approval)
        agent = Agent("bench", OpenAIChat(clients, Endpoint(model_url, "bench")), at.box, policy)
        engine = await stack.enter_async_context(
            Engine(
                store,
                {"bench": agent},
                signals=LocalSignals(),
                clock=SystemClock(),
                ids=RandomIds(),
                owner=new_owner(),
                observer=watch,
            )
        )

        async def step() -> Cost:
            watch.ended.clear()
            command = StartRun(
                str(uuid4()), "alice", str(uuid4()), MESSAGE, new=NewThread("alice"), fresh=True
            )
            await engine.start(command)
            await watch.ended.wait()
            return watch.cost

        yield step


@asynccontextmanager
async def through_sdk(folder: Path) -> AsyncIterator[Step]:
    # Only this measurement needs the library, which is slow to import.
    from mcp import Client, StdioServerParameters  # noqa: PLC0415
    from mcp.client.stdio import stdio_client  # noqa: PLC0415

    server = friendly(folder)
    parameters = StdioServerParameters(command=server["command"], args=server["args"])
    async with Client(stdio_client(parameters)) as client:
        session = client.session

        async def step() -> Cost:
            start = now()
            result = await session.call_tool("echo", ARGUMENTS)
            cost = since(start)
            assert not result.is_error
            return cost

        yield step


@asynccontextmanager
async def two_commits(folder: Path) -> AsyncIterator[Step]:
    async with SqliteStore(folder / "commits.sqlite") as store:

        async def step() -> Cost:
            thread = str(uuid4())
            epoch = await begin_thread(store, thread)
            start = now()
            await _commit_call(store, thread, epoch)
            return since(start)

        yield step


async def _commit_call(store: Store, thread: str, epoch: int) -> None:
    run_id, call_id, seal = f"run-{thread}", str(uuid4()), "0" * 64
    events: tuple[Event, ...] = (
        ToolStarted(run_id=run_id, call_id=call_id, digest=seal, idempotency_key=seal),
        ToolFinished(run_id=run_id, call_id=call_id, result=ARGUMENTS["text"]),  # type: ignore[arg-type]
    )
    for number, event in enumerate(events):
        guard = Owned("bench", epoch, next_seq=number + 2)
        await store.commit(Commit(thread, f"{number:032x}", guard, (event,)))


async def _rounds(folder: Path, model_url: str, calls: int, rounds: int) -> dict[str, list[Cost]]:
    """The tenth percentiles of each round."""
    found: dict[str, list[Cost]] = defaultdict(list)
    async with (
        through_engine(folder, model_url) as engine,
        through_sdk(folder) as sdk,
        two_commits(folder) as commits,
    ):
        steps: dict[str, Step] = {"engine": engine, "SDK": sdk, "two commits": commits}
        collect_rarely()
        # Not before: the servers would share the core.
        with one_core():
            for number in range(-1, rounds):
                costs: dict[str, list[Cost]] = defaultdict(list)
                for _ in range(calls if number >= 0 else WARM_UP):
                    for name, step in steps.items():
                        costs[name].append(await step())
                for name, each in costs.items() if number >= 0 else ():
                    found[name].append(Cost(*(low(values) for values in zip(*each, strict=True))))
    return found


def measure(calls: int = 200, rounds: int = 7) -> Report:
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        model_process() as model_url,
    ):
        found = uvloop.run(_rounds(Path(folder), model_url, calls, rounds))
    least = {
        name: Cost(min(each.wall for each in costs), min(each.cpu for each in costs))
        for name, costs in found.items()
    }
    engine, sdk, commits = least["engine"], least["SDK"], least["two commits"]
    return Report(
        f"A call of an MCP tool over stdio, ms (least of {rounds} tenth percentiles of {calls})",
        [f"  {name:<14} wall {c.wall:7.3f}   CPU {c.cpu:7.3f}" for name, c in least.items()],
        [
            Ratio(
                "engine - (SDK + two commits), ms",
                engine.wall - sdk.wall - commits.wall,
                BAR_MS,
                False,
            ),
            Ratio(
                "CPU: engine / (SDK + two commits)",
                engine.cpu / (sdk.cpu + commits.cpu),
                BAR_CPU,
                False,
            ),
        ],
    )


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A model that asks for the call, and when it has a result says so."""
    ask = {"index": 0, "id": "1", "function": {"name": TOOL, "arguments": json.dumps(ARGUMENTS)}}
    replies = {
        True: [{"content": "Said."}, "stop"],
        False: [{"tool_calls": [ask]}, "tool_calls"],
    }
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            break
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        request = json.loads(await reader.readexactly(length))
        delta, reason = replies[request["messages"][-1]["role"] == "tool"]
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        body = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
    writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def model_process() -> Iterator[str]:
    """The model's base address; it ends when its standard input does."""
    command = [sys.executable, "-m", "tests.bench.mcp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.communicate()


if __name__ == "__main__":
    asyncio.run(_serve())
