"""What a release consists of, and what keeps one from being made."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sk_agents.http.page import BUILT, INDEX
from tests.installed import check_installed
from tests.missing import lacks
from tests.patience import seconds

ROOT = Path(__file__).parent.parent
CHANGELOG = """# Changelog

## Unreleased

## 1.2.0 (2026-01-02)

### Fixed
- A thing.

## 1.1.0

## 1.0.0
- The first.
"""


@pytest.fixture(scope="module")
def release() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "release.py"))


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        ("1.2.0", "### Fixed\n- A thing."),
        ("1.1.0", ""),
        ("1.0.0", "- The first."),
        ("1.2", ""),
        ("1x2.0", ""),
        ("2.0.0", ""),
    ],
)
def test_changes_of_a_version_are_its_section_of_the_changelog(
    release: dict[str, Any], version: str, changes: str
) -> None:
    assert release["changes_in"](CHANGELOG, version) == changes


def test_bill_of_materials_holds_what_the_server_needs_and_no_tool(release: dict[str, Any]) -> None:
    needed = release["needed_packages"]("teal-agents")
    # Directly, through another package, and through an extra of another package.
    assert {"fastapi", "starlette", "httptools"} <= needed
    assert not {"pytest", "mypy", "hatchling", "litellm"} & needed


def test_entries_of_the_lock_are_taken_whole(release: dict[str, Any]) -> None:
    lock = "a==1 \\\n    --hash=sha256:0\nb-c==2 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n"
    taken = release["locked"](lock, {"b-c"})
    assert taken == "b-c==2 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the archive of sources, built as `make release` builds them."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(
        [*command, "-t", "wheel", "-t", "sdist"],
        cwd=ROOT,
        # The page as it is: it is not built again under tests that load it at the same time.
        env={**os.environ, "TEAL_BUILD_PAGE": "0"},
        check=True,
        capture_output=True,
        timeout=seconds(60),
    )
    return folder


def test_wheel_has_the_built_page_with_everything_that_it_loads(packages: Path) -> None:
    if not (BUILT / INDEX).is_file():
        lacks("page", "the page is not built: make page")
    (wheel,) = packages.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if "/ui_dist/" in name}
    built = {f"sk_agents/ui_dist/{p.relative_to(BUILT)}" for p in BUILT.rglob("*") if p.is_file()}
    assert f"sk_agents/ui_dist/{INDEX}" in inside
    assert inside == built


def test_archive_of_the_sources_has_what_the_page_is_built_from(packages: Path) -> None:
    (archive,) = packages.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    wanted = {"Makefile", "requirements.lock", "ui/package-lock.json", "ui/src/main.tsx"}
    wanted |= {"scripts/page_build_hook.py", "ui/schema.json"}
    assert wanted | {"pyproject.toml", "src/sk_agents/py.typed", "LICENSE"} <= inside
    assert not [name for name in inside if "node_modules" in name or name.startswith(".venv")]


def test_archive_of_the_sources_has_the_built_page_so_that_installing_it_needs_no_node(
    packages: Path,
) -> None:
    if not (BUILT / INDEX).is_file():
        lacks("page", "the page is not built: make page")
    (archive,) = packages.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    pages = {f"src/sk_agents/ui_dist/{name}" for name in (INDEX, "reference.html")}
    assert pages <= inside


def test_installed_wheel_serves_page_documentation_and_an_agent_with_an_mcp_server(
    packages: Path, tmp_path: Path
) -> None:
    if not (BUILT / INDEX).is_file():
        lacks("page", "the page is not built: make page")
    (wheel,) = packages.glob("*.whl")
    installed = tmp_path / "installed"
    install = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--no-deps"]
    install += ["--python", sys.executable, "--target", str(installed), str(wheel)]
    subprocess.run(install, check=True, timeout=seconds(60))
    # Before what is installed already, and beside none of our files.
    check_installed([sys.executable, "-m", "sk_agents"], tmp_path, PYTHONPATH=str(installed))


@pytest.mark.parametrize(
    ("age", "needed"), [(None, True), (-10, True), (10, False)], ids=["none", "older", "newer"]
)
def test_page_is_built_for_a_package_only_if_it_is_missing_or_older_than_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: int | None, needed: bool
) -> None:
    hook = runpy.run_path(str(ROOT / "scripts" / "page_build_hook.py"))
    source = tmp_path / "ui" / "src" / "main.tsx"
    built = tmp_path / "src" / "sk_agents" / "ui_dist" / INDEX
    for path in (source, built):
        path.parent.mkdir(parents=True)
    source.touch()
    if age is not None:
        built.touch()
        os.utime(built, (source.stat().st_mtime + age,) * 2)
    assert hook["needs_page"](tmp_path) is needed
    monkeypatch.setenv("TEAL_BUILD_PAGE", "0")
    assert not hook["needs_page"](tmp_path)


def test_page_states_a_version_without_which_npm_lists_no_packages() -> None:
    assert json.loads((ROOT / "ui" / "package.json").read_text())["version"]
