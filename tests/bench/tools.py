"""Turns in which the model calls a tool, and four at once, beside the proxy's.

The proxy syncs what was said, the calls before they run, and their results with the answer: a tool
that must not run twice needs no less. Ours syncs the results once more, before the model gets them.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import apsw

from tests.bench.chats import OURS, Row, our_server, row
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


def commits_a_turn(database: Path) -> float:
    """By the log itself: a commit is a record."""
    db = apsw.Connection(str(database))
    ((records,),) = db.execute("SELECT count(*) FROM record")
    ((runs,),) = db.execute("SELECT count(*) FROM entry WHERE kind = 'run'")
    return float(records / runs)


def measure(conversations: int = 64, turns: int = 20, repetitions: int = 5) -> Report:
    lines = []
    found: dict[int, list[tuple[Row, Row]]] = {count: [] for count in CALLS}
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
                    limit = row(address, pid, LIMIT, conversations, turns)
                with our_server(model_url, place, **AGENT) as server:
                    ours = row(server.address, server.pid, OURS, conversations, turns)
                commits[count] = commits_a_turn(place / "chats.sqlite")
                pairs.append((limit, ours))
                lines.append(
                    f"  {count} calls   limit {limit.turns_per_second:6.0f}/s"
                    f" {limit.cpu * 1e3:6.3f} ms   ours {ours.turns_per_second:6.0f}/s"
                    f" {ours.cpu * 1e3:6.3f} ms, {commits[count]:.2f} commits"
                )
    return Report(
        f"Turns with tools beside the limit, {conversations} conversations",
        lines,
        [
            Ratio(
                f"CPU a turn with {count} of them, ours / limit",
                statistics.median(ours.cpu / limit.cpu for limit, ours in pairs),
                BARS[count],
                at_least=False,
            )
            for count, pairs in found.items()
        ],
    )
