"""The server on an emulated DynamoDB beside the same on SQLite, and what a turn asks of the table.

The emulator runs where the model and the load do, and takes longer for a transaction than the
server does, so the turns a second say what this machine's emulator allows. The requests and units
of a turn are counted, and are the same on the real service.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from sk_agents.persistence.dynamodb.store import DynamoStore
from sk_agents.testing.scripted_model import calls, says
from tests.bench.chats import OURS, our_server, row
from tests.bench.model_client import model_process
from tests.bench.report import Ratio, Report
from tests.dynamodb import aws_environment, dynalite_server, store_url
from tests.engine.kit import Script, talking
from tests.stores.refusing_proxy import RefusingProxy

# Dollars for a million units on demand, in us-east-1.
WRITE_PRICE, READ_PRICE = 0.625, 0.125


def measure(conversations: int = 64, turns: int = 5, counted: int = 20) -> Report:
    lines: list[str] = []
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        aws_environment(),
        dynalite_server() as endpoint,
        model_process() as url,
    ):
        for name, store in (("sqlite", None), ("dynamodb", store_url(endpoint))):
            with our_server(f"{url}/burst", Path(folder) / name, store) as ours:
                found = row(ours.address, ours.pid, OURS, conversations, turns)
            lines.append(
                f"  {name:<9} {found.turns_per_second:7.0f} turns/s"
                f" {found.cpu * 1e3:6.3f} ms CPU {found.alone * 1e3:6.2f} ms alone"
            )
        plain = asyncio.run(_cost(endpoint, [says("done")], counted))
        tool = asyncio.run(
            _cost(endpoint, [calls(("Files-look", {"text": "x"})), says("ok")], counted)
        )
    for what, cost in (("a plain turn", plain), ("a turn with a tool", tool)):
        asked = ", ".join(f"{n / counted:.1f} {name}" for name, n in sorted(cost[0].items()))
        dollars = (cost[1] * WRITE_PRICE + cost[2] * READ_PRICE) / counted
        lines.append(
            f"  {what}: {asked}; {cost[1] / counted:.1f} write units,"
            f" {cost[2] / counted:.1f} read units; {dollars:.1f} dollars a million turns"
        )
    return Report(
        f"DynamoDB (emulated) beside SQLite: 32 tokens a turn, {conversations} conversations",
        lines,
        [
            Ratio("writes of a plain turn", _writes(plain[0]) / counted, 2, at_least=False),
            Ratio("writes of a turn with a tool", _writes(tool[0]) / counted, 4, at_least=False),
        ],
    )


async def _cost(endpoint: str, turn: Script, turns: int) -> tuple[Counter[str], float, float]:
    """The requests, write units and read units of so many turns of one conversation."""
    async with (
        RefusingProxy(endpoint) as proxy,
        DynamoStore(store_url(proxy.url)) as store,
        talking(store, script=[*says_all(turn, turns + 1)], lease_ttl=3600.0) as talk,
    ):
        await talk.ask()
        before, counted = proxy.passed.copy(), dict(store.metrics())
        for _ in range(turns):
            await talk.ask()
        asked, after = proxy.passed - before, store.metrics()
    # What an instance asks by itself every few seconds is no part of a turn.
    own = Counter({name: n for name, n in asked.items() if name in WRITES})
    return (
        own,
        after["write_units"] - counted["write_units"],
        after["read_units"] - counted["read_units"],
    )


def says_all(turn: Script, times: int) -> Script:
    return [step for _ in range(times) for step in turn]


WRITES = ("TransactWriteItems", "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem")


def _writes(asked: Counter[str]) -> int:
    return sum(n for name, n in asked.items() if name in WRITES)
