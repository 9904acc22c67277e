"""The places that CONTRIBUTING.md sends a newcomer to are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "CONTRIBUTING.md"
PLACE = re.compile(r"`((?:src|tests|docs|scripts)/[\w/.]+)(?:::(\w+))?`")
RECIPES = ("A surface", "A store", "A provider of models", "An authorizer")


def section(title: str, level: str = "##") -> str:
    text = GUIDE.read_text(encoding="utf-8")
    found = re.search(rf"^{level} {title}\n(.*?)(?=^{level} |^## |\Z)", text, re.M | re.S)
    assert found, f"CONTRIBUTING.md has no section {title!r}"
    return found[1]


def defined_in(file: Path) -> set[str]:
    """The names that a module defines at its top."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign():
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def problem_with(path: str, name: str, root: Path = ROOT) -> str | None:
    file = root / path
    if not file.exists():
        return f"CONTRIBUTING.md names {path}, which is not there: where has it moved?"
    if name and name not in defined_in(file):
        return f"CONTRIBUTING.md names {path}::{name}, but {path} defines no {name}"
    return None


def test_every_place_named_in_the_guide_exists() -> None:
    places = PLACE.findall(GUIDE.read_text(encoding="utf-8"))
    problems = [problem for path, name in places if (problem := problem_with(path, name))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_leads_from_an_interface_to_a_test_and_a_page(recipe: str) -> None:
    steps = section(recipe, "###")
    places = [path for path, _ in PLACE.findall(steps)]
    assert any(path.startswith("src/") for path in places)
    assert any(path.startswith("tests/") for path in places)
    assert "docs" in steps


def test_ten_questions_have_an_answer_each() -> None:
    rows = re.findall(r"^\| (.+\?) \| (.+) \|$", section("Ten questions"), re.MULTILINE)
    assert len(rows) == 10
    assert [question for question, answer in rows if not PLACE.search(answer)] == []


def test_place_that_moved_is_named(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("class Here: ...\nTABLE: dict[str, int] = {}\n")
    assert problem_with("here.py", "Here", tmp_path) is None
    assert problem_with("here.py", "TABLE", tmp_path) is None
    moved, renamed = problem_with("gone.py", "", tmp_path), problem_with("here.py", "X", tmp_path)
    assert moved is not None and "gone.py" in moved
    assert renamed is not None and "here.py::X" in renamed
