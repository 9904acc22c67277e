"""No setting without effect: each one is read by the code, or is known to be read by none."""

import ast
from collections.abc import Iterator
from pathlib import Path

from sk_agents.config.settings import PAIRS, Settings, variable

SOURCE = Path(__file__).parents[1] / "src" / "sk_agents"
DOCUMENTED = Path(__file__).parents[1] / "docs" / "settings.md"
OWN = SOURCE / "config" / "settings.py"
# A pair of module and class is handed on as a whole, by name.
BY_NAME = {field for pair in PAIRS for field in pair}
HOLDERS = {"settings", "_settings"}
# Looked up in the environment, under the variable's name: where.
BY_VARIABLE = {"api_key": SOURCE / "llm" / "providers.py"}


def read_fields(tree: ast.AST) -> Iterator[str]:
    """Attributes that are read of something called `settings`. A message that names a variable
    reads nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            holder = node.value
            name = holder.id if isinstance(holder, ast.Name) else getattr(holder, "attr", None)
            if name in HOLDERS:
                yield node.attr


def fields_read_by_the_code() -> set[str]:
    files = (file for file in SOURCE.rglob("*.py") if file != OWN)
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    return {field for tree in trees for field in read_fields(tree)}


def test_every_setting_is_read_by_the_code() -> None:
    read = fields_read_by_the_code() | BY_NAME | BY_VARIABLE.keys()
    assert {variable(field) for field in Settings.model_fields.keys() - read} == set()


def test_what_is_looked_up_by_its_variable_is() -> None:
    for field, file in BY_VARIABLE.items():
        assert f'"{variable(field)}"' in file.read_text(encoding="utf-8")


def test_every_documented_variable_is_a_setting() -> None:
    rows = [line.split("`")[1] for line in DOCUMENTED.read_text().splitlines() if "| `TA_" in line]
    fields = {variable(field) for field in Settings.model_fields}
    assert [name for name in rows if name.startswith("TA_") and name not in fields] == []


def test_a_field_that_is_only_set_is_not_read() -> None:
    tree = ast.parse("settings.one = 1\nother.two\nself.settings.three\nsettings.four\n'TA_FIVE'")
    assert set(read_fields(tree)) == {"three", "four"}
