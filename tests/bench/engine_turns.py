"""Streamed turns through the engine, in a process of its own, so that its CPU is all there is.

Usage: python -m tests.bench.engine_turns MODEL_URL DATABASE CONVERSATIONS TURNS [...]
What is stored is encrypted if there are encryption keys in the environment.
Prints, for each number of TURNS a conversation, the CPU seconds and the resident kilobytes then.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from uuid import uuid4

import orjson
import uvloop

from sk_agents.cli.garbage_collection import collect_rarely
from sk_agents.config.settings import Settings
from sk_agents.engine.agent import Agent
from sk_agents.engine.commands import StartRun
from sk_agents.engine.defaults import RandomIds, SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.models import NewThread, Part, UserInput
from sk_agents.hitl.policy import ApprovalPolicy
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint
from sk_agents.persistence.codec import PLAIN
from sk_agents.persistence.liveness import new_owner
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.signals.local import LocalSignals
from sk_agents.tools.toolbox import AgentToolbox
from sk_agents.wiring import store_codec

AT_ONCE = 64
MESSAGE = UserInput(parts=(Part(content="What does it depend on?"),))


async def converse(engine: Engine, thread_id: str, turns: int, slots: asyncio.Semaphore) -> None:
    async with slots:
        for _ in range(turns):
            run_id = str(uuid4())
            command = StartRun(thread_id, "alice", run_id, MESSAGE, new=NewThread("alice"))
            accepted = await engine.start(command)
            async for _ in engine.watch(thread_id, after=accepted.after, run_id=run_id):
                pass


def resident_kilobytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


async def run(model_url: str, database: Path, conversations: int, phases: list[int]) -> None:
    ids = [str(uuid4()) for _ in range(conversations)]
    codec = store_codec(Settings()) or PLAIN
    async with ModelClients() as clients, SqliteStore(database, codec=codec) as store:
        model = OpenAIChat(clients, Endpoint(model_url, "bench"))
        agent = Agent("bench", model, AgentToolbox(), ApprovalPolicy())
        signals, clock = LocalSignals(), SystemClock()
        async with Engine(
            store,
            {"bench": agent},
            signals=signals,
            clock=clock,
            ids=RandomIds(),
            owner=new_owner(),
        ) as engine:
            collect_rarely()
            slots = asyncio.Semaphore(AT_ONCE)
            for turns in phases:
                cpu, wall = time.process_time(), time.perf_counter()
                await asyncio.gather(*(converse(engine, each, turns, slots) for each in ids))
                report = {
                    "cpu": time.process_time() - cpu,
                    "wall": time.perf_counter() - wall,
                    "kilobytes": resident_kilobytes(),
                    "turns": conversations * turns,
                }
                print(orjson.dumps(report).decode(), flush=True)


if __name__ == "__main__":
    url, place, count, *rest = sys.argv[1:]
    uvloop.run(run(url, Path(place), int(count), [int(turns) for turns in rest]))
