"""A real process with an engine in it, told what to do by JSON lines and answering with them.

A command is `{"id": 1, "do": "start", ...}`, its answer `{"id": 1, "ok": ...}` or
`{"id": 1, "error": code}`; a `watch` goes on to print `{"event": ...}` lines.

Usage: python -m tests.chaos.engine_process STORE_URL MODEL_URL LEDGER_PORT [OPTION=VALUE ...]
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sk_agents.config.amounts import read_amounts
from sk_agents.engine.agent import Agent, RunLimits
from sk_agents.engine.commands import (
    CancelRun,
    DecideApproval,
    EditRun,
    StartRun,
    WithdrawVote,
)
from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.models import NewThread, Part, Price, UserInput
from sk_agents.engine.ports import Store, Toolbox
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.exceptions import TealError
from sk_agents.llm.model_clients import ModelClients
from sk_agents.llm.openai_chat import OpenAIChat
from sk_agents.llm.streamed_chat import Endpoint
from sk_agents.persistence.liveness import new_owner
from sk_agents.signals.local import LocalSignals
from sk_agents.spending.budgets import AgentBudget, StoreBudget
from sk_agents.spending.limits import limits_of
from sk_agents.spending.usage import UsageLedger
from sk_agents.tools.mcp.servers import McpServers
from tests.chaos.broken_builds import ACK_BEFORE_COMMIT, break_engine, store_for
from tests.chaos.ledger_tools import LedgerTools, SignaturesAsk
from tests.chaos.outage import Outage
from tests.chaos.swapping import swapping_tools

TTL = 0.5
# Of a million tokens.
PRICE = Price(10.0, 10.0, "USD")
USER = "alice"
FINANCE = frozenset({"group:finance"})


class RandomIds:
    def new(self) -> str:
        return str(uuid.uuid4())


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Desk:
    """Takes commands for one engine."""

    def __init__(self, engine: Engine, broken: str, servers: McpServers) -> None:
        self._engine = engine
        self._broken = broken
        self._servers = servers

    async def obey(self, line: dict[str, Any]) -> None:
        number, do = line.pop("id"), line.pop("do")
        try:
            if do == "start" and self._broken == ACK_BEFORE_COMMIT:
                say(id=number, ok=line["run_id"])
            say(id=number, ok=await getattr(self, do)(**line))
        except TealError as error:
            say(id=number, error=error.code)

    async def start(self, thread_id: str, run_id: str, text: str, **options: Any) -> str:
        accepted = await self._engine.start(
            StartRun(
                thread_id,
                USER,
                run_id,
                _message(text),
                new=NewThread(USER, agent="clerk"),
                **options,
            )
        )
        return accepted.run_id

    async def edit(self, thread_id: str, run_id: str, edited: str, text: str) -> str:
        edit = EditRun(thread_id, USER, run_id, edited, _message(text))
        return (await self._engine.edit(edit)).run_id

    async def decide(
        self, approval_id: str, approved: bool, user_id: str = USER, **options: Any
    ) -> bool:
        return await self._engine.decide(DecideApproval(approval_id, user_id, approved, **options))

    async def vote(self, approval_id: str, approved: bool, user_id: str) -> bool:
        return await self.decide(approval_id, approved, user_id, memberships=FINANCE)

    async def withdraw(self, approval_id: str, user_id: str) -> None:
        command = WithdrawVote(approval_id, user_id, memberships=FINANCE)
        await self._engine.withdraw_vote(command)

    async def cancel(self, thread_id: str, run_id: str) -> str:
        return await self._engine.cancel(CancelRun(thread_id, USER, run_id))

    async def withheld(self) -> int:
        """How many MCP tools nobody has agreed to as they are now."""
        return sum(server["withheld"] for server in self._servers.statuses())

    async def agree(self, server: str) -> int:
        return len(await self._servers.repin(server))

    async def watch(self, thread_id: str, run_id: str | None = None) -> str:
        async for items in self._engine.watch(thread_id, run_id=run_id):
            for item in items:
                if not isinstance(item, LiveDelta):
                    say(event=item.model_dump(mode="json"))
        return "ended"


def _message(text: str) -> UserInput:
    return UserInput(parts=(Part(content=text),))


def _budget(store: Store, amounts: str) -> StoreBudget:
    """What all instances together may spend in a day."""
    limits = tuple(limits_of("day", read_amounts(amounts)))
    clock = SystemClock()
    agents = {"clerk": AgentBudget("clerk", "obedient", limits)}
    return StoreBudget(store, clock, agents, UsageLedger(store, clock, 0))


async def commands() -> AsyncGenerator[dict[str, Any], None]:
    """What is asked on stdin, until it ends or SIGTERM comes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
    while line := await reader.readline():
        yield json.loads(line)


async def run(store_url: str, model_url: str, ledger_port: str, *options: str) -> None:
    chosen = dict(option.split("=", 1) for option in options)
    broken = chosen.get("broken", "")
    break_engine(broken)
    tools: Toolbox = LedgerTools(int(ledger_port), chosen)
    servers = McpServers()
    if "mcp" in chosen:
        servers, tools = swapping_tools(Path(chosen["mcp"]), ledger_port, chosen.get("server", ""))
    limits = RunLimits(cancel_grace_seconds=float(chosen.get("grace", "1")))
    async with AsyncExitStack() as stack:
        clients = await stack.enter_async_context(ModelClients())
        store = await stack.enter_async_context(store_for(store_url, broken))
        await stack.enter_async_context(servers)
        if "outage" in chosen:
            store = Outage(store, Path(chosen["outage"]))
        model = OpenAIChat(clients, Endpoint(model_url, "obedient"))
        policy = SignaturesAsk(chosen.get("review_seconds"))
        clerk = Agent("clerk", model, tools, policy, limits=limits, price=PRICE, max_tokens=1_000)
        engine = Engine(
            store,
            {chosen.get("agent", "clerk"): clerk},
            signals=LocalSignals(),
            clock=SystemClock(),
            ids=RandomIds(),
            owner=new_owner(),
            lease_ttl=float(chosen.get("ttl", TTL)),
            budget=_budget(store, chosen["budget"]) if "budget" in chosen else None,
        )
        tasks: set[asyncio.Task[None]] = set()
        # After the engine has left: what it still owes an answer gets it.
        stack.callback(lambda: [task.cancel() for task in tasks])
        await stack.enter_async_context(engine)
        say(ready=os.getpid())
        desk = Desk(engine, broken, servers)
        async for line in commands():
            task = asyncio.create_task(desk.obey(line))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
