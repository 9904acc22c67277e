"""The ranking of tests by processor time; see `tests/cpu_cost.py`."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.forked_python import unmeasured
from tests.patience import seconds

PLUGINS = ("-p", "tests.cpu_cost", "-p", "no:schemathesis", "-p", "no:anyio", "-p", "no:asyncio")
ROOT = Path(__file__).parent.parent
TESTS = """
import subprocess, sys

def test_that_works():
    sum(range(20_000_000))

def test_whose_program_works():
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)

def test_that_does_nothing():
    pass
"""


def test_tests_are_ranked_by_their_work_and_that_of_their_programs(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "-n", "1", "test_some.py"],
        cwd=tmp_path,
        env={**unmeasured(os.environ), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert done.returncode == 0, done.stdout
    assert "processor time of 3 tests" in done.stdout
    found = re.findall(r"(\d+\.\d+) s  test_some\.py::(\w+)", done.stdout)
    assert [name for _, name in found] == [
        "test_that_works",
        "test_whose_program_works",
        "test_that_does_nothing",
    ]
    assert float(found[1][0]) > 0.01
