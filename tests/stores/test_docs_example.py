"""The test files shown to those who write a store are run as they stand in the documentation."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.patience import seconds
from tests.requirements import requirement

PAGE = Path(__file__).parents[2] / "docs" / "persistence.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@requirement("S000-state-future-stores")
def test_examples_of_the_page_prove_a_store_outside_this_project(tmp_path: Path) -> None:
    for number, block in enumerate(BLOCK.findall(PAGE.read_text(encoding="utf-8"))):
        (tmp_path / f"test_block_{number}.py").write_text(block, encoding="utf-8")
    # A folder of its own has none of this project's settings; nor is its coverage measured.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    environment = {key: value for key, value in os.environ.items() if key[:4] != "COV_"}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=seconds(110)
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed[1]) >= 80
    assert "skipped" not in run.stdout
