"""CPU of a turn with telemetry off, beside a build in which nothing can be observed at all.

The bare build is made from the source: blocks around which an observer stands lose it, and calls
that tell it something are gone. Both builds are written anew from their syntax trees, so that they
differ in nothing else. They take turns, each a process of its own, alone on one core.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from tests.bench.cores import on_one_core
from tests.bench.model_client import model_process
from tests.bench.report import Ratio, Report

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "sk_agents"
WATCHED = "engine"
OBSERVER = "observer"


class Unhook(ast.NodeTransformer):
    """Takes every use of an observer out of a module; `removed` counts them."""

    def __init__(self) -> None:
        self.removed = 0
        self._told: set[str] = set()

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        if not any(_uses(item.context_expr) for item in node.items):
            return self.generic_visit(node)
        self.removed += 1
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                self._told.add(item.optional_vars.id)
        body: list[ast.stmt] = []
        for statement in node.body:
            kept = self.visit(statement)
            body += kept if isinstance(kept, list) else [kept] if kept is not None else []
        return body or [ast.Pass()]

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        call = node.value
        if isinstance(call, ast.Call) and (_uses(call.func) or self._tells(call)):
            self.removed += 1
            return None
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if isinstance(node.value, ast.Call) and _uses(node.value.func):
            self.removed += 1
            node.value = ast.Constant(None)
        return self.generic_visit(node)

    def _tells(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Name) and call.func.id in self._told


def _uses(node: ast.AST) -> bool:
    """Whether something of an observer is called."""
    return any(
        isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Attribute)
        and part.value.attr == OBSERVER
        for part in ast.walk(node)
    )


def build(folder: Path, *, bare: bool) -> int:
    """Write the package there; how many uses of an observer are left out."""
    copy = folder / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    removed = 0
    for file in (copy / WATCHED).glob("*.py"):
        tree = ast.parse(file.read_text())
        if bare:
            unhook = Unhook()
            tree = ast.fix_missing_locations(unhook.visit(tree))
            removed += unhook.removed
        file.write_text(ast.unparse(tree))
    return removed


def cpu_of_a_turn(
    source: Path, model_url: str, database: Path, conversations: int, turns: int
) -> float:
    command = [
        *(sys.executable, "-m", "tests.bench.engine_turns", model_url),
        *(str(database), str(conversations), "1", str(turns)),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=on_one_core,
    )
    measured = orjson.loads(done.stdout.splitlines()[-1])
    return float(measured["cpu"] / measured["turns"])


def measure(conversations: int = 64, turns: int = 40, repetitions: int = 5) -> Report:
    spent: dict[str, list[float]] = {"off": [], "bare": []}
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        model_process() as url,
    ):
        off, bare = Path(folder) / "off", Path(folder) / "bare"
        build(off, bare=False)
        removed = build(bare, bare=True)
        for number in range(repetitions):
            # The one that goes first finds the machine as the other left it.
            for source in (off, bare) if number % 2 else (bare, off):
                database = Path(folder) / f"{source.name}-{number}.sqlite"
                cpu = cpu_of_a_turn(source, f"{url}/burst", database, conversations, turns)
                spent[source.name].append(cpu)
    # Others on the machine only ever add to it: the least of each says most.
    ratio = min(spent["off"]) / min(spent["bare"])
    return Report(
        f"CPU of a turn with telemetry off, {conversations} conversations",
        [
            f"  off {one * 1e3:6.3f} ms   unobservable {other * 1e3:6.3f} ms"
            for one, other in zip(spent["off"], spent["bare"], strict=True)
        ],
        [
            Ratio("telemetry off / unobservable", ratio, 1.03, at_least=False),
            Ratio("uses of the observer left out", removed, 1),
        ],
    )
