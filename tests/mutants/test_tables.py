"""The tables of the mutation tests name what exists. `make check` runs them first of all tests."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.equivalent import EQUIVALENT, Equivalent
from tests.mutants.modules import TESTS_OF
from tests.mutants.operators import Mutant, mutants

ROOT = Path(__file__).parent.parent.parent
ADVICE = (
    "If the change still makes no difference there, write the line into "
    "tests/mutants/equivalent.py as it is now; otherwise take the entry out."
)


def source_of(module: str) -> str:
    return (ROOT / "src" / "sk_agents" / (module.replace(".", "/") + ".py")).read_text()


@cache
def mutants_of(module: str) -> Sequence[Mutant]:
    return mutants(module, source_of(module))


def stale(known: Equivalent, source: str, found: Sequence[Mutant]) -> str | None:
    """Why the entry fits none of these mutants, and what may have become of its line."""
    if any(known.is_of(mutant, source) for mutant in found):
        return None
    name = f"{known.module}: {known.operator} in `{known.line}`"
    lines = {line.strip(): number for number, line in enumerate(source.splitlines(), 1)}
    if known.line in lines:
        there = sorted(
            f"{mutant.operator} -> {mutant.replacement}"
            for mutant in found
            if mutant.place(source) == known.line
        )
        return f"{name} is not made any more with {known.text!r}, but {there}. {ADVICE}"
    near = difflib.get_close_matches(known.line, lines, n=2, cutoff=0.4)
    shown = "".join(f"\n  line {lines[line]}: {line}" for line in near) or " none"
    return f"{name}: no such line in its module. Similar ones:{shown}\n{ADVICE}"


@pytest.mark.parametrize("module", TESTS_OF)
def test_module_and_its_tests_exist(module: str) -> None:
    assert mutants_of(module)
    assert [test for test in TESTS_OF[module] if not (ROOT / test).exists()] == []


@pytest.mark.parametrize("module", sorted({known.module for known in EQUIVALENT}))
def test_equivalent_mutants_of_a_module_can_still_be_made_and_have_reasons(module: str) -> None:
    entries = [known for known in EQUIVALENT if known.module == module]
    assert module in TESTS_OF
    assert all(known.reason for known in entries)
    source = source_of(module)
    problems = [stale(known, source, mutants_of(module)) for known in entries]
    assert not any(problems), "\n".join(filter(None, problems))


def test_entry_of_a_line_that_is_gone_fits_nothing_and_says_what_may_have_become_of_it() -> None:
    source = "def f(a):\n    b = 1\n    return a < 1\n"
    found = mutants("m", source)

    def problem(line: str, text: str | None = None) -> str | None:
        return stale(Equivalent("m", line, "shift boundary", "a reason", text), source, found)

    assert problem("return a < 1") is None
    other_text = problem("return a < 1", "a > 1")
    assert other_text is not None and "shift boundary -> a <= 1" in other_text
    changed = problem("return a < 2")
    assert changed is not None and "line 3: return a < 1" in changed
    gone = problem("while True:")
    assert gone is not None and "Similar ones: none" in gone
