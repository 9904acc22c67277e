"""A turn without a stream through Teal's stateful API beside the proxy's.

Conversations of as many turns on both sides: every request but the first goes on with its task.
What requests take that each make a task of their own is shown once and judges nothing.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import orjson
import uvloop

from tests.bench.chat_load import BODY, JsonConversation, TaskConversation, converse
from tests.bench.chats import our_server
from tests.bench.model_client import model_process
from tests.bench.report import Ratio, Report
from tests.bench.turns import cpu_seconds, limit_server

ITEMS = [{"content_type": "text", "content": "What does it depend on?"}]
OURS = orjson.dumps({"items": ITEMS})
PATH = "/one/0.1"


def turn_cpu(
    address: str,
    pid: int,
    path: str,
    body: bytes,
    protocol: type[JsonConversation],
    conversations: int,
    turns: int,
) -> float:
    """CPU seconds a turn, after a turn each to warm up."""

    def run(count: int) -> int:
        talk = converse(address, path, conversations, count, body=body, protocol=protocol)
        return uvloop.run(talk).turns

    run(1)
    before = cpu_seconds(pid)
    done = run(turns)
    return (cpu_seconds(pid) - before) / done


def measure(conversations: int = 64, turns: int = 20, repetitions: int = 9) -> Report:
    lines, ratios = [], []
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        model_process() as url,
    ):
        for number in range(repetitions):
            place = Path(folder) / str(number)
            with limit_server(f"{url}/burst", place.with_suffix(".limit")) as (address, pid):
                limit = turn_cpu(
                    address, pid, "/json/c{}", BODY, JsonConversation, conversations, turns
                )
            with our_server(f"{url}/burst", place) as server:
                ours, fresh = (
                    turn_cpu(server.address, server.pid, PATH, OURS, kind, conversations, turns)
                    for kind in (TaskConversation, JsonConversation)
                )
            lines.append(
                f"  limit {limit * 1e3:6.3f} ms   ours {ours * 1e3:6.3f} ms"
                f"   a new task each {fresh * 1e3:6.3f} ms"
            )
            ratios.append(ours / limit)
    return Report(
        f"CPU of a turn without a stream, {conversations} conversations",
        lines,
        [Ratio("V3 turn, ours / limit", statistics.median(ratios), 1.5, at_least=False)],
    )
