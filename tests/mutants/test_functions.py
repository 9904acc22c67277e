"""The functions of an imported module get a mutant's code, wherever they stand."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.functions import NotInAFunction, functions_there_are, replace_functions

SOURCE = """
LIMIT = 3

def below(a, most=LIMIT):
    return (
        a <
        most
    )

def adder(b):
    def add(a):
        return a + b
    return add

class Sum:
    start = 10

    def of(self, a):
        return self.start + max(x + 1 for x in [a])

five_more = adder(5)
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    file = tmp_path / "mutated.py"
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("mutated", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replace(module: ModuleType, before: str, after: str) -> None:
    assert module.__file__ is not None
    assert before in SOURCE
    mutated = SOURCE.replace(before, after)
    replace_functions(functions_there_are(), module.__file__, SOURCE, mutated)


def results(module: ModuleType) -> tuple[object, ...]:
    return (
        module.below(3),
        module.five_more(1),
        module.adder(1)(1),
        module.Sum().of(1),
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a <\n        most", "a <= most", (True, 6, 2, 12)),
        ("a + b", "a - b", (False, -4, 0, 12)),
        ("self.start + max", "self.start - max", (False, 6, 2, 8)),
        ("x + 1", "x - 1", (False, 6, 2, 10)),
    ],
)
def test_function_that_is_changed_does_as_the_mutant_says(
    module: ModuleType, before: str, after: str, expected: tuple[object, ...]
) -> None:
    assert results(module) == (False, 6, 2, 12)
    replace(module, before, after)
    assert results(module) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("most=LIMIT", "most=4"),
        ("start = 10", "start = 11"),
        ("adder(5)", "adder(6)"),
        ("max(x + 1 for x in [a])", "(a)"),
    ],
)
def test_what_an_import_does_is_left_to_an_import(
    module: ModuleType, before: str, after: str
) -> None:
    with pytest.raises(NotInAFunction):
        replace(module, before, after)
    assert results(module) == (False, 6, 2, 12)
