"""Every route of every API serves each caller their own data and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import seconds
from tests.security import ownership


async def test_every_route_answers_each_caller_as_the_table_says(tmp_path: Path) -> None:
    found = await ownership.findings(tmp_path)
    assert found.mistakes == []
    assert found.asked > 200


def test_route_that_is_not_in_the_table_is_found() -> None:
    (found,) = ownership.unlisted([*ownership.KINDS, "GET /secrets/{secret_id}"])
    assert found.startswith("GET /secrets/{secret_id} is not in the table")


def test_ownership_does_not_depend_on_assertions() -> None:
    command = [sys.executable, "-O", "-m", "tests.security.ownership"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds(60))
    assert (ended.returncode, ended.stdout.count("\n")) == (0, 1), ended.stdout + ended.stderr
