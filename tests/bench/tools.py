"""Turns in which the model calls a tool, and four at once, beside the proxy's.

The proxy syncs what was said, the calls before they run, and their results with the answer: a tool
that must not run twice needs no less. Ours syncs the results once more, before the model gets them.

How long a turn takes is measured with one conversation, what it costs with many at once.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from tests.bench.chats import OURS, our_server, row, run
from tests.bench.model_client import CALLS, TOOL, model_process
from tests.bench.report import Ratio, Report
from tests.bench.turns import limit_server

LIMIT = "/tools/c{}"
BARS = {1: 1.4, 4: 1.8}
PLUGIN = """
from sk_agents.ska_types import BasePlugin
from sk_agents.tools import kernel_function


class RoomPlugin(BasePlugin):
    @kernel_function(description="Look around in a room.")
    async def look(self, place: str) -> str:
        return f"There is a table in {place}."
"""
AGENT: dict[str, Any] = {
    "plugins": ["RoomPlugin"],
    "approvals": {"rules": [{"tool": TOOL, "then": "allow"}]},
}


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """In seconds: how long one takes alone, and what one of many costs."""

    alone: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.alone * 1e3:5.2f} ms alone, {self.cpu * 1e3:6.3f} ms of CPU"


def tool_turn(address: str, pid: int, path: str, conversations: int, turns: int) -> ToolTurn:
    many = row(address, pid, path, conversations, turns)
    one = run(address, path.replace("c{}", "alone"), 1, max(turns, 30))
    return ToolTurn(one.seconds / one.turns, many.cpu)


def commits_a_turn(database: Path) -> float:
    """By the log itself: a commit is a record."""
    db = apsw.Connection(str(database))
    ((records,),) = db.execute("SELECT count(*) FROM record")
    ((runs,),) = db.execute("SELECT count(*) FROM entry WHERE kind = 'run'")
    return float(records / runs)


def measure(conversations: int = 64, turns: int = 20, repetitions: int = 5) -> Report:
    lines = []
    found: dict[int, list[tuple[ToolTurn, ToolTurn]]] = {count: [] for count in CALLS}
    commits = {}
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        model_process() as url,
    ):
        for number in range(repetitions):
            for count, pairs in found.items():
                place, model_url = Path(folder) / f"{count}-{number}", f"{url}/calls{count}"
                place.mkdir()
                (place / "custom_plugins.py").write_text(PLUGIN)
                with limit_server(model_url, place.with_suffix(".limit")) as (address, pid):
                    limit = tool_turn(address, pid, LIMIT, conversations, turns)
                with our_server(model_url, place, **AGENT) as server:
                    ours = tool_turn(server.address, server.pid, OURS, conversations, turns)
                commits[count] = commits_a_turn(place / "chats.sqlite")
                pairs.append((limit, ours))
                lines.append(
                    f"  {count} calls   limit {limit}   ours {ours}, {commits[count]:.2f} commits"
                )
    return Report(
        f"Turns with tools beside the limit, {conversations} conversations",
        lines,
        [
            Ratio(
                f"{words} a turn with {count} of them, ours / limit",
                statistics.median(getattr(ours, of) / getattr(limit, of) for limit, ours in pairs),
                BARS[count],
                at_least=False,
            )
            for of, words in (("alone", "time of"), ("cpu", "CPU of"))
            for count, pairs in found.items()
        ],
    )
