"""What a run costs that waits for a human, beside a few of them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from tests.bench.report import Ratio, Report


def measure(runs: int = 10_000) -> Report:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        command = [
            *(sys.executable, "-m", "tests.bench.waiting_runs"),
            *(str(Path(folder) / "waiting.sqlite"), str(runs)),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = orjson.loads(done.stdout)
    few, many = found["few"] * 1e3, found["many"] * 1e3
    return Report(
        f"{runs:,} runs waiting for approval",
        [f"  decision to first event: {few:.2f} ms with few, {many:.2f} ms with all"],
        [
            Ratio("KB resident per waiting run", found["kilobytes"], 2, at_least=False),
            Ratio("decision to first event, all waiting / few", many / few, 1.2, at_least=False),
        ],
    )
