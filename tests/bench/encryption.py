"""Turns with what is stored encrypted, beside the same turns in plain text.

Streamed turns through the engine on SQLite, each run a process of its own, alone on one core. They
take turns, and the best of each counts: others on the machine only ever slow a run down.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from sk_agents.persistence.encryption import new_key
from tests.bench.cores import on_one_core
from tests.bench.model_client import model_process
from tests.bench.report import Ratio, Report


def turns_a_second(
    model_url: str, database: Path, conversations: int, turns: int, key: str | None
) -> tuple[float, float]:
    """By the clock, and by the CPU that the process has used."""
    environment = {name: value for name, value in os.environ.items() if name[:3] != "TA_"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.bench.engine_turns", model_url),
            *(str(database), str(conversations), "1", str(turns)),
        ],
        env=environment | ({"TA_ENCRYPTION_KEYS": key} if key else {}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=on_one_core,
    )
    measured = orjson.loads(done.stdout.splitlines()[-1])
    return measured["turns"] / measured["wall"], measured["turns"] / measured["cpu"]


def measure(conversations: int = 64, turns: int = 40, repetitions: int = 5) -> Report:
    rates: dict[str | None, list[tuple[float, float]]] = {None: [], new_key(): []}
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder,
        model_process() as url,
    ):
        for number in range(repetitions):
            for key in rates if number % 2 else reversed(rates):
                database = Path(folder) / f"{number}-{bool(key)}.sqlite"
                sample = turns_a_second(f"{url}/burst", database, conversations, turns, key)
                rates[key].append(sample)
    plain, encrypted = rates.values()
    best, sealed = ([max(column) for column in zip(*each, strict=True)] for each in rates.values())
    return Report(
        f"Turns a second, {conversations} conversations",
        [
            f"  plain {one[0]:7.0f} ({one[1]:6.0f} by CPU)"
            f"   encrypted {other[0]:7.0f} ({other[1]:6.0f} by CPU)"
            for one, other in zip(plain, encrypted, strict=True)
        ],
        [
            Ratio("turns a second, encrypted / plain", sealed[0] / best[0], 0.85),
            Ratio("turns a second of CPU, encrypted / plain", sealed[1] / best[1], 0.85),
        ],
    )
