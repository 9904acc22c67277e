"""Runs that wait for a human, in a process of its own: what they cost, and how fast one goes on.

Usage: python -m tests.bench.waiting_runs DATABASE RUNS
Prints the kilobytes each run adds once as many fill the caches, and the seconds from a decision to
the first event after it, with few and with all of them waiting.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import orjson
import uvloop

from sk_agents.cli.garbage_collection import collect_rarely
from sk_agents.engine.agent import Agent
from sk_agents.engine.commands import DecideApproval, StartRun
from sk_agents.engine.defaults import RandomIds, SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import ToolStarted
from sk_agents.engine.models import NewThread, Part, UserInput
from sk_agents.engine.turns import CallRequested, ModelPiece, Prompt, TextDelta, TurnFinished
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.persistence.liveness import new_owner
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.signals.local import LocalSignals
from sk_agents.ska_types import BasePlugin
from sk_agents.tools.declarations import kernel_function
from sk_agents.tools.plugins import plugin_tools
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.worker_threads import WorkerThreads
from tests.bench.engine_turns import resident_kilobytes

MESSAGE = UserInput(parts=(Part(content="Please send it."),))
FEW, AT_ONCE, SAMPLES = 10, 64, 40


class Mail(BasePlugin):
    @kernel_function(description="Send a mail.")
    async def send(self, to: str) -> str:
        return f"sent to {to}"


class Sender:
    """A model that sends a mail, then says so."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece], None]:
        if prompt.messages[-1].role == "tool":
            yield [TextDelta("Sent."), TurnFinished()]
        else:
            yield [CallRequested("1", "Mail-send", '{"to":"bob"}'), TurnFinished("tool_calls")]


async def start_waiting(engine: Engine, numbers: range) -> list[str]:
    """Start so many runs, and their approvals once each waits."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> str:
        async with slots:
            thread_id = f"thread-{number}"
            command = StartRun(
                thread_id, "alice", f"run-{number}", MESSAGE, new=NewThread("alice"), fresh=True
            )
            accepted = await engine.start(command)
            run = await engine.result(thread_id, accepted.run_id)
            return run.pending_approvals[0].request.approval_id

    return await asyncio.gather(*(one(number) for number in numbers))


async def decision_seconds(engine: Engine, approvals: Sequence[str], first: int) -> float:
    """Median time from asking to decide to seeing the tool start."""
    found = []
    for number, approval_id in enumerate(approvals, first):
        thread_id = f"thread-{number}"
        after = (await engine.thread(thread_id, "alice")).state.next_seq - 1
        start = time.perf_counter()
        await engine.decide(DecideApproval(approval_id, "alice", approved=True))
        async for items in engine.watch(thread_id, after=after, run_id=f"run-{number}"):
            if any(isinstance(item, ToolStarted) for item in items):
                break
        found.append(time.perf_counter() - start)
    return statistics.median(found)


async def run(database: Path, runs: int) -> None:
    toolbox = AgentToolbox(plugin_tools(Mail, threads=WorkerThreads(), origin="bench"))
    agent = Agent("bench", Sender(), toolbox, ApprovalPolicy())
    async with SqliteStore(database) as store:
        async with Engine(
            store,
            {"bench": agent},
            signals=LocalSignals(),
            clock=SystemClock(),
            ids=RandomIds(),
            owner=new_owner(),
        ) as engine:
            collect_rarely()
            few = await start_waiting(engine, range(SAMPLES + FEW))
            fast = await decision_seconds(engine, few[:SAMPLES], 0)
            await start_waiting(engine, range(1_000, 1_000 + runs))
            gc.collect()
            full_caches = resident_kilobytes()
            await start_waiting(engine, range(1_000 + runs, 1_000 + 2 * runs))
            gc.collect()
            grown = (resident_kilobytes() - full_caches) / runs
            last = await start_waiting(engine, range(SAMPLES + FEW, 2 * SAMPLES + FEW))
            crowded = await decision_seconds(engine, last, SAMPLES + FEW)
    print(orjson.dumps({"kilobytes": grown, "few": fast, "many": crowded}).decode())


if __name__ == "__main__":
    uvloop.run(run(Path(sys.argv[1]), int(sys.argv[2])))
