"""How long a sandboxed program takes to start, beside the same program without walls.

From the call to the first byte the program prints: launcher, walls and interpreter. A bare process
of the same interpreter is measured in turn with it, so that both meet the same machine.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

import uvloop

from sk_agents.tools.sandbox.plans import ProgramLimits, Wall
from sk_agents.tools.sandbox.sandbox import SourceCode, candidates, failure, run_program
from tests.bench.report import Ratio, Report
from tests.security.sandboxes import bwrap_path

PROGRAM = "print('up', flush=True)"
BAR_MS = 90
BAR_RATIO = 4.5


async def bare(folder: Path) -> float:
    """Milliseconds to its first byte."""
    before = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", PROGRAM), stdout=asyncio.subprocess.PIPE, cwd=folder
    )
    assert process.stdout is not None
    assert await process.stdout.read(2) == b"up"
    elapsed = time.perf_counter() - before
    await process.communicate()
    return elapsed * 1000


async def walled(wall: Wall, folder: Path) -> float:
    """Milliseconds to its first byte."""
    before = time.perf_counter()
    pieces = run_program(
        SourceCode("python", PROGRAM), folder, ProgramLimits(), wall=wall, bwrap=bwrap_path()
    )
    async with aclosing(pieces):
        first = await anext(pieces)
        elapsed = time.perf_counter() - before
        assert isinstance(first, bytes) and first.startswith(b"up"), first
        async for _ in pieces:
            pass
    return elapsed * 1000


async def _rounds(walls: list[Wall], folder: Path, repetitions: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ("bare", *walls)}
    for _ in range(repetitions):
        found["bare"].append(await bare(folder))
        for wall in walls:
            found[wall].append(await walled(wall, folder))
    return found


def measure(repetitions: int = 30) -> Report:
    walls = [wall for wall in candidates(bwrap_path()) if failure(wall, bwrap_path()) is None]
    assert walls, "no sandbox works on this machine"
    with tempfile.TemporaryDirectory() as made:
        found = uvloop.run(_rounds(walls, Path(made).resolve(), repetitions))
    medians = {name: statistics.median(times) for name, times in found.items()}
    ratios = []
    for wall in walls:
        ratios.append(Ratio(f"start behind {wall}, ms", medians[wall], BAR_MS, at_least=False))
        ratios.append(
            Ratio(f"{wall} / bare", medians[wall] / medians["bare"], BAR_RATIO, at_least=False)
        )
    return Report(
        f"A Python program, from the call to its first byte, ms (median of {repetitions})",
        [f"  {name:<28} {value:>9.1f}" for name, value in medians.items()],
        ratios,
    )
