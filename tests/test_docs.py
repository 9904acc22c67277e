"""The documents and the code say the same."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, get_args

import pytest

from sk_agents.config.settings import ALIASED_FIELDS, Settings, alias_variable, variable
from sk_agents.engine import ports
from sk_agents.engine.events import EVENT_TYPES, KnownEvent, LogEvent
from tests.patience import seconds

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = {"node_modules", "ui_dist", "dist", "build"}

ENGINE_WORDS = [
    "thread",
    "run",
    "event",
    "approval",
    "running",
    "waiting",
    "completed",
    "failed",
    "cancelled",
]
FENCE = re.compile(r"^(```+)([^\n`]*)\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)


def documents() -> list[Path]:
    found: list[Path] = []
    for folder, inner, files in os.walk(ROOT):
        # What is not ours is not walked through: the packages have thousands of folders.
        inner[:] = {name for name in inner if not name.startswith(".")} - GENERATED
        found += [Path(folder, name) for name in files if name.endswith(".md")]
    return sorted(found)


def without_code(text: str) -> str:
    return INLINE_CODE.sub("", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The names by which a page's headings can be linked to."""
    headings = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists():
            yield f"{page.name}: {target}"
        elif anchor and linked.suffix == ".md" and anchor not in anchors(linked.read_text()):
            yield f"{page.name}: {target} (no such heading)"


def python_blocks() -> list[tuple[str, str]]:
    """Each block of Python in the documentation, with where it stands."""
    return [
        (f"{page.relative_to(ROOT)}:{text[: block.start()].count(chr(10)) + 1}", block[3])
        for page in documents()
        for text in [page.read_text(encoding="utf-8")]
        for block in FENCE.finditer(text)
        if block[2].strip() == "python"
    ]


def sections(page: Path) -> dict[str, str]:
    """The text under each third-level heading that is one name in code."""
    parts = re.split(r"^### `(\w+)`$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def first_column(text: str) -> list[str]:
    """The names in code that start a row of a table."""
    return re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    documented = first_column((DOCS / "settings.md").read_text(encoding="utf-8"))
    assert sorted(documented) == sorted(map(variable, Settings.model_fields))


@pytest.mark.parametrize("field", ALIASED_FIELDS)
def test_second_name_of_a_setting_is_documented(field: str) -> None:
    assert f"`{alias_variable(field)}`" in (DOCS / "settings.md").read_text(encoding="utf-8")


def test_every_event_type_has_its_section_and_no_other_has() -> None:
    assert sections(DOCS / "events.md").keys() == EVENT_TYPES


@pytest.mark.parametrize("kind", get_args(KnownEvent), ids=lambda kind: kind.__name__)
def test_fields_of_an_event_are_documented(kind: type[LogEvent]) -> None:
    section = sections(DOCS / "events.md")[kind.model_fields["type"].default]
    own = kind.model_fields.keys() - LogEvent.model_fields.keys() - {"type"}
    assert sorted(first_column(section)) == sorted(own)


def test_fields_that_every_event_has_are_documented() -> None:
    opening = (DOCS / "events.md").read_text(encoding="utf-8").partition("\n### ")[0]
    assert set(first_column(opening)) == {*LogEvent.model_fields, "type"}


def port_names() -> list[str]:
    return [
        name
        for name, value in vars(ports).items()
        if isinstance(value, type) and Protocol in value.__bases__
    ]


@pytest.mark.parametrize("port", port_names())
def test_port_is_named_in_the_architecture(port: str) -> None:
    assert f"`{port}`" in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", ENGINE_WORDS)
def test_word_of_the_engine_is_in_the_glossary(word: str) -> None:
    terms = re.findall(r"^\*\*([^*]+)\*\*", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert word in {name.strip() for term in terms for name in term.split(",")}


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a](there.md)", []),
        ("[a](there.md#two-words)", []),
        ("[a](#here)\n# Here", []),
        ("[a](https://example.invalid/x) `[b](c)`\n```\n[d](e)\n```\n", []),
        ("[a](gone.md)", ["page.md: gone.md"]),
        ("![a](gone.png)", ["page.md: gone.png"]),
        ("[a](there.md#gone)", ["page.md: there.md#gone (no such heading)"]),
    ],
)
def test_broken_link_is_found(tmp_path: Path, text: str, broken: list[str]) -> None:
    (tmp_path / "there.md").write_text("## Two `words`!\n")
    (tmp_path / "page.md").write_text(text)
    assert list(broken_links(tmp_path / "page.md")) == broken


def test_python_in_the_documentation_is_python() -> None:
    for place, block in python_blocks():
        compile(block, place, "exec")


@pytest.mark.parametrize(
    ("place", "block"),
    [(place, block) for place, block in python_blocks() if block.startswith("# runnable")],
)
def test_example_marked_as_runnable_runs(place: str, block: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(block, encoding="utf-8")
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=seconds(60)
    )
    assert done.returncode == 0, f"{place}\n{done.stderr}"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_named_in_a_page_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    text = (ROOT / page).read_text(encoding="utf-8")
    code = [block[3] for block in FENCE.finditer(text)]
    code += INLINE_CODE.findall(FENCE.sub("", text))
    options = r"(?:[A-Z]+=\S+ +)*"
    named = {name for part in code for name in re.findall(rf"\bmake +{options}([a-z]+)", part)}
    assert named, "the page shows no command"
    assert named <= targets
