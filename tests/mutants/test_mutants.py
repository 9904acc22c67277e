"""The tables of the mutation tests name what exists, and a run of them changes no file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.equivalent import EQUIVALENT, Equivalent
from tests.mutants.modules import TESTS_OF
from tests.mutants.operators import Mutant, mutants
from tests.patience import seconds

ROOT = Path(__file__).parent.parent.parent


def source_of(module: str) -> str:
    return (ROOT / "src" / "sk_agents" / (module.replace(".", "/") + ".py")).read_text()


@cache
def mutants_of(module: str) -> Sequence[Mutant]:
    return mutants(module, source_of(module))


@pytest.mark.parametrize("module", TESTS_OF)
def test_module_and_its_tests_exist(module: str) -> None:
    assert mutants_of(module)
    assert [test for test in TESTS_OF[module] if not (ROOT / test).exists()] == []


@pytest.mark.parametrize("known", EQUIVALENT, ids=lambda known: f"{known.module}: {known.line}")
def test_equivalent_mutant_can_still_be_made_and_has_a_reason(known: Equivalent) -> None:
    source = source_of(known.module)
    assert known.module in TESTS_OF
    assert known.reason
    assert any(known.is_of(mutant, source) for mutant in mutants_of(known.module))


def test_entry_of_a_line_that_is_gone_matches_nothing() -> None:
    source = "def f(a):\n    return a < 1\n"
    there = Equivalent("m", "return a < 1", "shift boundary", "a reason")
    other_text = Equivalent("m", "return a < 1", "shift boundary", "a reason", "a > 1")
    gone = Equivalent("m", "return a < 2", "shift boundary", "a reason")
    found = mutants("m", source)
    assert [
        one.line
        for one in (there, other_text, gone)
        for mutant in found
        if one.is_of(mutant, source)
    ] == ["return a < 1"]


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
