"""The manifest and the tests agree, in both directions.

The tests' sources are parsed, not run: an id counts when `@requirement` puts it on something that
pytest collects. Skips are not looked at; a skipped test says itself why.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import ATTRIBUTE, REQUIREMENTS, SEEDS, UnknownRequirement, requirement
from tests.seeds.requirement import Requirement

TESTS = Path(__file__).parent
KNOWN_ID = "S001-authorizer-dummy"

Decorated = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def requirement_calls(node: Decorated) -> Iterator[ast.Call]:
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="requirement") | ast.Attribute(attr="requirement")):
                yield decorator


def collected(body: Iterable[ast.stmt]) -> Iterator[Decorated]:
    """What pytest collects from a module's or a test class's body."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test"):
                yield node
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield node
            yield from collected(node.body)


def literal_ids(call: ast.Call) -> list[str]:
    return [
        argument.value
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def carried_ids(source: str) -> set[str]:
    return {
        id
        for node in collected(ast.parse(source).body)
        for call in requirement_calls(node)
        for id in literal_ids(call)
    }


def misused_marks(source: str) -> list[str]:
    """Marks that would count for nothing: on what is not collected, or with ids not spelled out."""
    tree = ast.parse(source)
    tests = list(collected(tree.body))
    problems = []
    for node in ast.walk(tree):
        if not isinstance(node, Decorated):
            continue
        for call in requirement_calls(node):
            if node not in tests:
                problems.append(f"line {call.lineno}: `{node.name}` is not collected by pytest")
            if len(literal_ids(call)) != len(call.args) or call.keywords:
                problems.append(f"line {call.lineno}: ids must be string literals")
    return problems


def untested(manifest: Mapping[str, Requirement], carried: set[str]) -> list[str]:
    return [id for id, entry in manifest.items() if entry.reason is None and id not in carried]


def unknown(manifest: Mapping[str, Requirement], carried: set[str]) -> list[str]:
    return sorted(carried - manifest.keys())


def contradicting(manifest: Mapping[str, Requirement], carried: set[str]) -> list[str]:
    return [id for id, entry in manifest.items() if entry.reason is not None and id in carried]


def listed(ids: Iterable[str]) -> str:
    return "".join(f"\n  {id}" for id in ids)


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}


@pytest.fixture(scope="module")
def carried(sources: dict[Path, str]) -> set[str]:
    files = (source for path, source in sources.items() if path.name.startswith("test_"))
    return {id for source in files for id in carried_ids(source)}


def test_every_requirement_has_a_test_or_a_reason(carried: set[str]) -> None:
    missing = untested(REQUIREMENTS, carried)
    assert not missing, f"neither a test nor a reason:{listed(missing)}"


def test_every_mark_names_a_requirement(carried: set[str]) -> None:
    strangers = unknown(REQUIREMENTS, carried)
    assert not strangers, f"marked in a test, missing in the manifest:{listed(strangers)}"


def test_no_tested_requirement_keeps_its_reason(carried: set[str]) -> None:
    contradictory = contradicting(REQUIREMENTS, carried)
    assert not contradictory, f"tested now, remove the reason:{listed(contradictory)}"


def test_every_mark_is_on_a_test_and_spells_its_ids(sources: dict[Path, str]) -> None:
    problems = [
        f"{path.relative_to(TESTS.parent)} {problem}"
        for path, source in sources.items()
        for problem in misused_marks(source)
    ]
    assert not problems, listed(problems)


def test_no_two_entries_share_an_id_or_a_behaviour() -> None:
    assert len(REQUIREMENTS) == sum(len(seed) for seed in SEEDS)
    assert len({entry.behaviour for entry in REQUIREMENTS.values()}) == len(REQUIREMENTS)


def test_ids_name_seed_and_subject_and_behaviours_are_sentences() -> None:
    for id, entry in REQUIREMENTS.items():
        assert re.fullmatch(r"S00[0-4](-[a-z0-9.]+)+", id), id
        assert entry.behaviour.endswith("."), id
        assert entry.reason is None or entry.reason.strip(), id


MANIFEST = {
    "S000-tested": Requirement("It is tested."),
    "S000-forgotten": Requirement("Nobody tests it."),
    "S000-later": Requirement("It comes later.", "Later work"),
}


def test_entry_without_test_and_reason_is_found() -> None:
    assert untested(MANIFEST, {"S000-tested"}) == ["S000-forgotten"]


def test_mark_missing_in_the_manifest_is_found() -> None:
    assert unknown(MANIFEST, {"S000-tested", "S000-invented"}) == ["S000-invented"]


def test_entry_with_test_and_reason_is_found() -> None:
    assert contradicting(MANIFEST, {"S000-tested", "S000-later"}) == ["S000-later"]


MARKED_SOURCE = """
@requirement("a", "b")
def test_plain(): ...

@pytest.mark.parametrize("x", [1])
@requirements.requirement("c")
async def test_parametrized(x): ...

class TestGroup:
    @requirement("d")
    def test_method(self): ...

@requirement("e")
class TestWhole: ...
"""


def test_ids_are_read_from_functions_coroutines_methods_and_classes() -> None:
    assert carried_ids(MARKED_SOURCE) == {"a", "b", "c", "d", "e"}
    assert misused_marks(MARKED_SOURCE) == []


@pytest.mark.parametrize(
    "source",
    [
        '@requirement("a")\ndef helper(): ...',
        '@requirement("a")\nclass Contract: ...',
        'class Contract:\n    @requirement("a")\n    def test_it(self): ...',
        'def test_outer():\n    @requirement("a")\n    def test_inner(): ...',
    ],
)
def test_mark_on_what_pytest_does_not_collect_is_refused(source: str) -> None:
    assert carried_ids(source) == set()
    assert "not collected" in misused_marks(source)[0]


@pytest.mark.parametrize("arguments", ["NAME", "*NAMES", "id='a'", "f'{a}'"])
def test_mark_with_ids_not_spelled_out_is_refused(arguments: str) -> None:
    source = f"@requirement({arguments})\ndef test_it(): ..."
    assert misused_marks(source) == ["line 1: ids must be string literals"]


@pytest.mark.parametrize("ids", [("S000-invented",), (KNOWN_ID, "S000-invented"), ()])
def test_marking_with_an_unknown_id_or_none_raises_at_import(ids: tuple[str, ...]) -> None:
    with pytest.raises(UnknownRequirement):
        requirement(*ids)


def plain() -> str:
    return "plain"


async def coroutine() -> str:
    return "coroutine"


@pytest.mark.parametrize("function", [plain, coroutine])
def test_marked_function_stays_itself_and_keeps_its_ids(function: Callable[..., Any]) -> None:
    marked = requirement(KNOWN_ID)(function)
    assert marked is function
    assert getattr(marked, ATTRIBUTE) == (KNOWN_ID,)


def test_stacked_marks_add_up() -> None:
    def stacked() -> None: ...

    requirement(KNOWN_ID)(requirement("S001-authorizer-abstract")(stacked))
    assert getattr(stacked, ATTRIBUTE) == (KNOWN_ID, "S001-authorizer-abstract")
