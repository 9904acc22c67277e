"""Values of a configuration file mean one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sk_agents.config.strict_yaml import read_yaml
from sk_agents.exceptions import ConfigurationError


def read(folder: Path, text: str, **options: bool) -> Any:
    path = folder / "file.yaml"
    path.write_text(text)
    return read_yaml(path, **options)


@pytest.mark.parametrize(
    "value",
    [
        "no", "No", "NO", "yes", "on", "off", "OFF",
        "012", "-012", "00", "0o12", "0b101", "1_000", "1_000.5",
        "1:30", "12:30:45", "-1:30", "1:30.5",
    ],
)  # fmt: skip
def test_what_two_versions_of_yaml_read_differently_is_refused_with_its_line(
    tmp_path: Path, value: str
) -> None:
    for text in (
        f"first: 1\nlimit: {value}",
        f"first: 1\nlist: [{value}]",
        f"first: 1\n{value}: x",
    ):
        with pytest.raises(ConfigurationError, match=r"file\.yaml, line 2: .*quote it"):
            read(tmp_path, text)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("'no'", "no"), ('"012"', "012"), ("'1:30'", "1:30"),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("0", 0), ("-17", -17), ("+3", 3), ("0x1F", 31), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5),
        ("0.1", 0.1), ("y", "y"), ("n", "n"), ("nothing", "nothing"), ("node", "node"),
        ("2024-01-31", "2024-01-31"), ("09:30", "09:30"), ("1.2.3", "1.2.3"), ("a_1", "a_1"),
        ("gpt-4o", "gpt-4o"), ("10 minutes", "10 minutes"), ("=", "="),
    ],
)  # fmt: skip
def test_all_else_is_read_by_the_core_schema(tmp_path: Path, value: str, meant: object) -> None:
    found = read(tmp_path, f"key: {value}")["key"]
    assert (found, type(found)) == (meant, type(meant))


def test_text_in_blocks_may_say_what_it_likes(tmp_path: Path) -> None:
    assert read(tmp_path, "key: |\n  no\n")["key"] == "no\n"


def test_a_document_of_somebody_else_is_read_and_not_refused(tmp_path: Path) -> None:
    found = read(tmp_path, "enum: [yes, no, 1:30]", strict=False)
    assert found == {"enum": ["yes", "no", "1:30"]}


def test_merging_still_works(tmp_path: Path) -> None:
    text = "base: &base {a: 1}\nboth:\n  <<: *base\n  b: 2\n"
    assert read(tmp_path, text)["both"] == {"a": 1, "b": 2}
