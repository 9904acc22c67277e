"""`docs/guarantees.md`: every promise names what proves it, or says that it is not made yet."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
PROMISES = 35
NOT_YET = "Not promised yet"

HEADING = re.compile(r"^### G(\d+)\. .+$", re.MULTILINE)
PROOF = re.compile(r"^- Proof: (.+?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)
RUN = re.compile(r"^- Run: (.+?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)
TEST_PATH = re.compile(r"(?<![\w/])tests/[\w./-]*\w")
COMMAND = re.compile(r"`make ([^`]+)`")
SELECTED = re.compile(r"-k (?:'([^']+)'|(\w+))")


def promises() -> dict[int, str]:
    """The text of each promise, by its number."""
    parts = HEADING.split(PAGE)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def paths(text: str) -> set[str]:
    return set(TEST_PATH.findall(text))


def test_promises_are_numbered_without_a_gap() -> None:
    assert [int(number) for number in HEADING.findall(PAGE)] == list(range(1, PROMISES + 1))


@pytest.mark.parametrize("number", range(1, PROMISES + 1))
def test_promise_names_its_proof_and_its_command_or_is_not_made_yet(number: int) -> None:
    text = promises()[number]
    proof, run = PROOF.search(text), RUN.search(text)
    if proof is None:
        assert text.strip().startswith(NOT_YET)
        return
    assert paths(proof[1])
    assert run is not None and COMMAND.search(run[1]), "a proof that nobody can run is none"


@pytest.mark.parametrize("path", sorted(paths(PAGE)))
def test_named_test_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("command", sorted(set(COMMAND.findall(PAGE))))
def test_named_command_is_a_target_and_selects_something(command: str) -> None:
    assert command.split()[0] in targets()
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    for quoted, plain in SELECTED.findall(command):
        for word in (quoted or plain).split(" or "):
            assert any(word in file for file in files), word
