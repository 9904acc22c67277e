"""A run of the mutation tests finds what it should and changes no file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import seconds

ROOT = Path(__file__).parent.parent.parent


def source_of(module: str) -> str:
    return (ROOT / "src" / "sk_agents" / (module.replace(".", "/") + ".py")).read_text()


def test_a_mutant_that_a_test_notices_dies_and_the_tree_stays_as_it_is() -> None:
    module = "hitl.approval_manager"
    before = source_of(module)
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--module", module, "--count", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )
    assert done.returncode in (0, 1), done.stderr
    assert source_of(module) == before
    words = [
        line.split()[1] for line in done.stdout.splitlines() if line.lstrip()[:2] in ("1/", "2/")
    ]
    assert len(words) == 2
    assert "killed" in words
    assert done.stdout.splitlines()[-1].startswith("all")
