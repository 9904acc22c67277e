"""The house rules that no linter knows."""

import ast
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sk_agents
from tests.requirements import requirement

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sk_agents"
VAGUE_MODULES = {"common", "helper", "helpers", "util", "utils"}

# Files that may catch everything, each with the foreign code that runs there.
BROAD_EXCEPTS: dict[str, str] = {
    "cli/logs.py": "whatever a logged value's own text raises",
    "documents/pdf_program.py": "a broken file may make the library raise anything",
    "engine/calls/completions.py": "an operator's own model",
    "engine/run/rounds.py": "an operator's own model",
    "engine/threads/titling.py": "an operator's own model",
    "engine/reading/head_poll.py": "a store that fails: each reader that asked is told",
    "engine/reading/watch.py": "a surface's outlet, called by the run",
    "config/class_loader.py": "a module or class the operator names",
    "hitl/policy.py": "the operator's catalog class",
    "tools/agents_sdk/agent_tools.py": "a tool of an agent that is a tool",
    "tools/agents_sdk/author_code.py": "functions of an agent's author",
    "tools/agents_sdk/output_type.py": "validators of an agent's author",
    "tools/plugins.py": "a plugin's preview",
    "tools/parameters.py": "the validators and annotations of a plugin",
    "http/caller.py": "the operator's authorizer",
    "http/front.py": "our own mistake, answered and logged",
    "http/health.py": "the ping of an operator's store",
    "worker_threads.py": "carries what a function raised to its caller",
    "persistence/commit_writer.py": "the writer must outlive what a commit raises",
    "persistence/sqlite/group_writer.py": "the writer must outlive every job",
    "skagents/outputs.py": "the operator's types and templates; a stream must say how it ended",
    "llm/kernel_chat.py": "a model client of the operator's own",
    "llm/custom_factory.py": "the operator's factory of model clients",
    "tools/catalog.py": "the constructor of the operator's catalog class",
    "tools/mcp/connection.py": "an MCP server, its network and its library",
    "persistence/interactions/user_interactions.py": "the operator's class for interactions",
    "persistence/tasks/user_tasks.py": "the operator's persistence class",
}

# Classes that share a name with another one, each with the reason.
SHARED_NAMES: dict[str, str] = {
    "Agent": "the engine's, and the one that the public project's plugins know",
    "Clock": "the engine's port, and a plugin, whose name users read in its tools",
    "Reply": "of a model to the engine, and of a server to the Python client",
}
PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)

# Written in parts, or this file would break its own rule.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("deb", "debian", "org"),
    )
]
HOST = re.compile("|".join(map(re.escape, REGISTRY_HOSTS)), re.IGNORECASE)
# Parsing all the others would take long.
MAY_CATCH_EVERYTHING = re.compile(r"except(:|.*Exception\b)")
# The bound of a wait as a number, past `tests.patience.seconds`.
BARE_BOUND = re.compile(
    r"asyncio\.timeout\(\d|mark\.timeout\(\d|wait_for\([^#]*, \d+\)|\.join\((?:timeout=)?\d"
    r"|(?:wait|communicate)\(timeout=\d|\b(?:TIMEOUT|PATIENCE) = \d"
)
# An attribute that its class keeps to itself, reached from outside.
PRIVATE = re.compile(
    r"(?<!\bself)(?<!\bcls)(?<!super\(\))(?<!uvicorn)\._(?!_|replace\b|exit\b)[a-zA-Z]"
)
# Tests that may reach one, each with its reason.
REACH_INSIDE: dict[str, str] = {
    "chaos/broken_builds.py": "breaks the build on purpose",
    "complexity/work.py": "counts the steps of asyncio's loop",
    "simulation/disk.py": "a constructor of its own class",
    "simulation/history.py": "a task of asyncio that a crash ends is not to complain",
    "simulation/virtual_loop.py": "an event loop runs asyncio's handles",
    "simulation/virtual_threads.py": "a job of its own module",
}
MACHINE_PATH = re.compile(r"(?<![\w.~})/-])/(?:root|work|home|Users)/[\w.-]")


def project_files() -> list[Path]:
    """Tracked files and those that the next `git add` would track."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in project_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def lines_of_tests(pattern: re.Pattern[str]) -> dict[str, list[str]]:
    """The lines of tests in which it is found, by file."""
    tests = ROOT / "tests"
    lines = {
        str(path.relative_to(tests)): [
            line.strip() for line in path.read_text().splitlines() if pattern.search(line)
        ]
        for path in tests.rglob("*.py")
        if path != Path(__file__)
    }
    return {name: found for name, found in lines.items() if found}


def catches_everything(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler) or _raises_again(node):
        return False
    if node.type is None:
        return True
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(isinstance(c, ast.Name) and c.id in {"Exception", "BaseException"} for c in caught)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    """Tidies up and passes the error on: nothing is swallowed."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked_packages() -> Iterator[tuple[str, str]]:
    """Yield the name and the whole entry of each package in the lock."""
    lock = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    for entry in lock.splitlines():
        yield entry.split("==")[0], entry


def normalized_name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def test_no_file_names_a_registry_host() -> None:
    assert lines_matching(HOST) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert lines_matching(MACHINE_PATH) == []


def test_uv_lock_is_not_in_the_project() -> None:
    assert [path for path in project_files() if path.name == "uv.lock"] == []


def test_every_locked_package_has_a_hash() -> None:
    entries = list(locked_packages())
    assert entries
    assert [name for name, entry in entries if "--hash=sha256:" not in entry] == []


def test_lock_holds_no_address() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_every_declared_dependency_is_locked() -> None:
    project = pyproject()
    declared = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    locked = {name for name, _ in locked_packages()}
    assert {normalized_name(requirement) for requirement in declared} <= locked


def test_version_is_the_same_in_the_package_and_its_metadata() -> None:
    assert sk_agents.__version__ == pyproject()["project"]["version"]


def test_no_module_has_a_vague_name() -> None:
    modules = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert [path for path in modules if path.stem in VAGUE_MODULES] == []


def test_no_two_public_classes_share_a_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for name in PUBLIC_CLASS.findall(path.read_text(encoding="utf-8")):
            places[name].append(str(path.relative_to(SOURCE)))
    shared = {name: sorted(found) for name, found in places.items() if len(found) > 1}
    assert shared.keys() == SHARED_NAMES.keys(), shared


def test_every_bound_of_a_wait_in_the_tests_can_be_stretched() -> None:
    found = lines_of_tests(BARE_BOUND)
    assert {name: lines for name, lines in found.items() if not name.startswith("bench/")} == {}


def test_tests_reach_no_private_attributes() -> None:
    found = lines_of_tests(PRIVATE)
    assert {name: lines for name, lines in found.items() if name not in REACH_INSIDE} == {}
    assert REACH_INSIDE.keys() <= found.keys()


def test_only_listed_files_catch_everything() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if MAY_CATCH_EVERYTHING.search(text := path.read_text())
        and any(map(catches_everything, ast.walk(ast.parse(text))))
    }
    assert found == BROAD_EXCEPTS.keys()


def test_no_source_file_uses_wait_for() -> None:
    """Until Python 3.12 it swallows a cancellation that comes with its result."""
    used = re.compile(r"asyncio\.wait_for\(")
    assert [str(p) for p in SOURCE.rglob("*.py") if used.search(p.read_text())] == []


@requirement("S001-tests-coverage")
def test_check_holds_a_coverage_floor_of_80_percent() -> None:
    coverage = pyproject()["tool"]["coverage"]
    assert coverage["report"]["fail_under"] >= 80
    assert coverage["run"]["source"] == ["sk_agents"]
    recipe = (ROOT / "Makefile").read_text().split("\ncheck:")[1].split("\n\n")[0]
    assert "coverage report" in recipe


@pytest.mark.parametrize("command", ["make serve", "make test"])
def test_readme_shows_the_command(command: str) -> None:
    assert command in (ROOT / "README.md").read_text()
