"""Which mistakes are made, and where."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.operators import Mutant, mutants
from tests.mutants.workshop import Baseline

SOURCE = Path(__file__).parent.parent.parent / "src" / "sk_agents"


def made(source: str, operator: str) -> list[str]:
    """What the source says after each mistake of that kind."""
    return [one.applied(source) for one in mutants("m", source) if one.operator == operator]


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("flip comparison", "f(a < b)", ["f(a >= b)"]),
        ("flip comparison", "f(a is None)", ["f(a is not None)"]),
        ("flip comparison", "f(0 < a in b)", ["f(0 >= a in b)", "f(0 < a not in b)"]),
        ("shift boundary", "f(a < b)", ["f(a <= b)"]),
        ("shift boundary", "f(a == b)", []),
        ("swap and/or", "f(a and b or c)", ["f(((a and b) and c))", "f((a or b) or c)"]),
        ("drop operand", "f(a and b)", ["f((b))", "f((a))"]),
        ("swap arithmetic", "f(a - 1)", ["f((a + 1))"]),
        ("negate", "f(not a)", ["f((a))"]),
        ("negate", "if a: f()", ["if (not a): f()"]),
        ("negate", "if a < b: f()", []),
        ("swap results", "f(a if b else c)", ["f((c if b else a))"]),
        ("shift constant", "f(2)", ["f((3))", "f((1))"]),
        ("shift constant", "LIMIT = 2", []),
        ("flip truth", "f(x=True)", ["f(x=False)"]),
        ("drop raise", "if a:\n    raise B", ["if a:\n    pass"]),
        ("drop statement", "if a: f(a)", ["if a: pass"]),
        ("drop statement", "if a: f.b = a", ["if a: pass"]),
        ("drop statement", "if a: b = a", []),
        ("drop statement", "async def f():\n    await g()", ["async def f():\n    pass"]),
        ("drop handler", "try: f()\nexcept E: g()", ["try: f()\nexcept (): g()"]),
    ],
)
def test_mistake_is_made_in_its_place_only(operator: str, before: str, after: list[str]) -> None:
    assert sorted(made(before, operator)) == sorted(after)


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "import a",
        "assert a < 1",
        "def f(a: Literal[1]) -> Literal[2]: return a",
        "@d(slots=True)\nclass A: ...",
        "logger.warning('x', extra={'n': 1})",
        "failpoint('committed')",
        "if TYPE_CHECKING:\n    f(1)",
        "x = f'{a < 1}'",
        "SIZE = 2 * 1024",
        "SIZE: int = 2",
        "class A:\n    size: int = 2",
    ],
)
def test_what_decides_nothing_is_left_alone(source: str) -> None:
    assert mutants("m", source) == []


def test_letters_of_several_bytes_before_it_do_not_move_a_mistake() -> None:
    assert made("f('é') or f('ü', True)", "flip truth") == ["f('é') or f('ü', False)"]


def test_diff_names_the_file_and_shows_the_line() -> None:
    (mutant,) = mutants("engine.reading.live", "def f():\n    g()\n")
    diff = mutant.diff("def f():\n    g()\n").splitlines()
    assert diff[0] == "--- engine/reading/live.py"
    assert diff[-2:] == ["-    g()", "+    pass"]


def test_statement_of_a_mistake_is_what_has_to_be_executed_for_it() -> None:
    source = "match f(\n    a,\n):\n    case 1:\n        g()\n    case B() if a < b:\n        h()\n"
    places = {(one.operator, one.line): one.statement for one in mutants("m", source)}
    assert places["flip comparison", 6] == 6
    assert places["drop statement", 7] == 7


CANCELLED = """
async def f():
    if await g():
        h()

    def i():
        h()
"""


def test_mistake_in_a_coroutine_that_was_cancelled_meets_the_tests_of_all_its_lines() -> None:
    """What goes on after a cancellation is executed, and not reported as a line."""
    found = {(one.operator, one.line): one for one in mutants("m", CANCELLED)}
    lines = {2: [""], 3: ["stops"], 7: ["calls"]}
    baseline = Baseline({"calls": 1.0, "stops": 2.0}, [], {"m": lines})
    assert baseline.tests_of(found["drop statement", 4], Counter()) == ["calls", "stops"]
    assert baseline.tests_of(found["negate", 3], Counter()) == ["stops"]
    assert found["drop statement", 7].coroutine is None


@pytest.mark.parametrize("module", ["engine/run/context_window.py", "engine/log/state.py"])
def test_every_mutant_is_another_program(module: str) -> None:
    source = (SOURCE / module).read_text()
    original = ast.dump(ast.parse(source))

    def is_another(mutant: Mutant) -> bool:
        return ast.dump(ast.parse(mutant.applied(source))) != original

    assert [one for one in mutants(module, source) if not is_another(one)] == []
