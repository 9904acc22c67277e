"""What runs around a change: hooks on commits, hosted CI, and the documentation as a site."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.patience import seconds
from tests.test_house import pyproject

ROOT = Path(__file__).parent.parent
# What a browser fetches by itself; a link that a reader may follow is none of it.
FETCHED = re.compile(
    r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//[^"]*"'
    r'|<link[^>]+rel="(?:stylesheet|preconnect|preload)"[^>]+href="(?:https?:)?//[^"]*"'
    r"|url\((?:https?:)?//[^)]*\)|@import +[\"'](?:https?:)?//[^\"']*"
)


def parsed(path: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    return document


def rule(target: str) -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return makefile.split(f"\n{target}:")[1].split("\n\n")[0].splitlines()


def recipe(target: str) -> list[str]:
    return rule(target)[1:]


def prerequisites(target: str) -> list[str]:
    return rule(target)[0].partition("##")[0].split()


def test_commits_run_what_check_runs_without_downloading_anything() -> None:
    (repository,) = parsed(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    entries = [hook["entry"] for hook in repository["hooks"]]
    assert all(entry.startswith((".venv/bin/", "make ")) for entry in entries)
    parts = prerequisites("check")
    commands = [line for part in parts for line in recipe(part)]
    for tool in ("ruff check", "ruff format --check", "mypy", "tests/test_house.py"):
        assert any(tool in line for line in commands)
        assert any(tool in entry for entry in entries)
    for target in ("lint-page", "docs"):
        assert target in parts
        assert any(entry.endswith(target) for entry in entries)


def test_documentation_is_built_so_that_warnings_count() -> None:
    (line,) = recipe("docs")
    assert "mkdocs build --strict" in line
    # It would drop warnings before they are counted.
    assert "--quiet" not in line


def test_hosted_ci_runs_the_command_that_everybody_can_run() -> None:
    job = parsed(".github/workflows/ci.yml")["jobs"]["suite"]
    *prepared, last = job["steps"]
    assert last == {"run": ".ci/run"}
    used = [step["uses"] for step in prepared if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in used)


def test_surfaces_are_also_run_on_uvicorns_own_protocol() -> None:
    job = parsed(".github/workflows/ci.yml")["jobs"]["stock-protocol"]
    assert job["env"]["TEAL_TEST_PROTOCOL"] == "stock"
    assert job["steps"][-1]["run"].endswith("tests/chats tests/surfaces")


def test_every_python_that_the_package_claims_is_run_by_ci() -> None:
    job = parsed(".github/workflows/ci.yml")["jobs"]["suite"]
    stated = re.findall(r"Python :: (3\.\d+)", " ".join(pyproject()["project"]["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == stated
    assert pyproject()["project"]["requires-python"] == f">={stated[0]}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_site_has_the_pages_in_the_order_of_a_reader(site: Path) -> None:
    titles = [next(iter(part)) for part in _navigation()]
    assert titles == ["Getting started", "Concepts", "Guides", "Reference", "Operations"]
    shown = {path.stem for path in site.glob("*.html")}
    written = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert written | {"index", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY"} <= shown


def test_every_page_of_the_documentation_is_in_the_navigation() -> None:
    named = {str(page) for part in _navigation() for pages in part.values() for page in pages}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= named


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 20
    found = {match[0] for page in pages for match in FETCHED.finditer(page.read_text("utf-8"))}
    assert found == set()


def test_link_to_a_page_outside_of_the_folder_holds_on_the_site(site: Path) -> None:
    assert 'href="demos/index.html"' in (site / "migrating.html").read_text(encoding="utf-8")
    assert 'href="chats.html"' in (site / "index.html").read_text(encoding="utf-8")


def _navigation() -> list[dict[str, list[Any]]]:
    # The configuration holds a tag that only mkdocs understands.
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    navigation: list[dict[str, list[Any]]] = yaml.safe_load(text)
    return navigation
