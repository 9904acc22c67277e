"""Who may import whom. The table is the architecture; a file that breaks it is named with its line.

A room is a folder or a module directly under the package. A row names rooms, or single modules of
a room (`config.class_loader`) where only those are shared.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import requirement

PACKAGE = "sk_agents"
SOURCE = Path(__file__).parent.parent / "src" / PACKAGE

SURFACES = {"chats", "skagents", "tealagents", "todo_chat"}
BACK_ROOMS = {
    "audit",
    "authorization",
    "hitl",
    "llm",
    "persistence",
    "signals",
    "spending",
    "tools",
}
WORDS = {
    "documents",
    "exceptions",
    "interactions",
    "postgres_access",
    "private_files",
    "redaction",
    "redis_access",
    "ska_types",
    "wire",
    "worker_threads",
}
# The seeds name this abstract class and its place; who checks callers must know it.
AUTHORIZER = {"authorization.request_authorizer", "authorization.roles"}
# Those that send requests to other servers.
NETWORKED = {"authorization", "llm", "tools"}
# What every part of the front door stands on.
FRONT = {"agent_assembly", "config", "engine", "http", "telemetry", "wiring"} | WORDS
# How a back room finds the class that a setting names.
CONFIGURED = {
    "config.amounts",
    "config.class_loader",
    "config.public_names",
    "config.settings",
    "config.store_url",
    "config.strict_yaml",
}

MAY_IMPORT: Mapping[str, set[str]] = {
    "__main__": {"cli"},
    "cli": {
        "app",
        "audit",
        "authorization.access_keys",
        "authorization.issuer",
        "authorization.request_authorizer",
        "authorization.roles",
        "authorization.token_authorizer",
        "client",
        "config",
        "http",
        "outbound",
        "persistence.encryption",
        "persistence.key_sources",
        "persistence.store_encryption",
        "stand_ins",
        "telemetry",
        "tools.mcp.pins",
        "wiring",
    }
    | WORDS,
    "app": FRONT | {"appv1", "appv2", "appv3", "chats", "todo_chat"} | AUTHORIZER,
    "appv1": FRONT | {"skagents"},
    "appv2": FRONT | {"skagents"},
    "appv3": FRONT | {"tealagents"},
    "wiring": {"agent_assembly", "config", "engine", "outbound", "telemetry"} | BACK_ROOMS | WORDS,
    "agent_assembly": {"config", "engine", "outbound"} | BACK_ROOMS | WORDS,
    "plugin_catalog": {"config", "exceptions", "tools.catalog"},
    "extra_data_collector": {"ska_types"},
    # It names the modules that it loads when they are asked for.
    "stand_ins": set(),
    **{surface: {"config", "engine", "http"} | WORDS for surface in SURFACES},
    **{room: CONFIGURED | {"engine"} | WORDS for room in BACK_ROOMS - NETWORKED},
    **{room: CONFIGURED | {"engine", "outbound"} | WORDS for room in NETWORKED},
    "outbound": {"config.settings", "exceptions"},
    # The packaged agents' own plugins: they know what any plugin's author may know.
    "agents": {"ska_types", "tools"},
    "http": {"engine", "exceptions", "telemetry", "wire.views", "worker_threads"} | AUTHORIZER,
    "telemetry": {"config.settings", "engine", "exceptions", "redaction"},
    "config": {"exceptions", "private_files"},
    "engine": {"exceptions"},
    "client": {"exceptions", "private_files", "wire"},
    "testing": {"app", "client", "config", "engine", "http", "wiring"} | BACK_ROOMS | WORDS,
    "interactions": {"engine", "exceptions", "wire"},
    "ska_types": {"engine.models", "exceptions"},
    "wire": {"exceptions"},
    "documents": set(),
    "exceptions": set(),
    "postgres_access": {"exceptions"},
    "private_files": {"exceptions"},
    "redaction": {"config.settings"},
    "redis_access": {"exceptions"},
    "worker_threads": {"exceptions"},
    "__init__": set(),
}
LIBRARIES: Mapping[str, set[str]] = {
    "engine": {"pydantic", "pydantic_core"},
    "wire": {"pydantic", "pydantic_core"},
    "exceptions": set(),
}
LAZY = "# noqa: PLC0415"
ARCHITECTURE = SOURCE.parents[1] / "ARCHITECTURE.md"
# As the table in ARCHITECTURE.md calls rooms that are often named together.
GROUPS: Mapping[str, set[str]] = {
    "words": WORDS,
    "surfaces": SURFACES,
    "back rooms": BACK_ROOMS,
    "configured": CONFIGURED,
    "front": FRONT,
}


@dataclass(frozen=True, slots=True)
class Import:
    """`target` is the whole dotted name, with what a `from` import takes out of its module."""

    file: Path
    line: int
    target: str
    in_function: bool
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def rooms(source: Path) -> set[str]:
    return {
        path.stem
        for path in source.iterdir()
        if path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py")))
    }


def room_of(file: Path, source: Path) -> str:
    return file.relative_to(source).parts[0].removesuffix(".py")


def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        module = "." * node.level + (node.module or "")
        yield from (f"{module}.{alias.name}" for alias in node.names)


@cache
def imports(source: Path) -> tuple[Import, ...]:
    return tuple(_imports(source))


def _imports(source: Path) -> Iterator[Import]:
    for file in sorted(source.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tree, lines = ast.parse(text), text.splitlines()
        inside = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                shown = lines[node.lineno - 1].strip()
                for target in targets(node):
                    yield Import(file, node.lineno, target, id(node) in inside, shown)


def is_allowed(target: str, allowed: set[str]) -> bool:
    return any(target == entry or target.startswith(f"{entry}.") for entry in allowed)


def foreign_imports(source: Path) -> list[str]:
    """Imports of our own rooms that the table does not allow."""
    known = rooms(source)
    problems = []
    for entry in imports(source):
        package, _, target = entry.target.partition(".")
        if package != PACKAGE and not entry.target.startswith("."):
            continue
        room = room_of(entry.file, source)
        # A name of the package itself, such as its version, belongs to no room.
        of_package = package == PACKAGE and target.partition(".")[0] not in known
        allowed = MAY_IMPORT.get(room, set()) | {room}
        if not of_package and (package != PACKAGE or not is_allowed(target, allowed)):
            problems.append(str(entry))
    return problems


def foreign_libraries(source: Path) -> list[str]:
    ours = {PACKAGE, "__future__"} | sys.stdlib_module_names
    return [
        str(entry)
        for entry in imports(source)
        if (libraries := LIBRARIES.get(room_of(entry.file, source))) is not None
        and entry.target.partition(".")[0] not in libraries | ours
    ]


def hidden_imports(source: Path) -> list[str]:
    return [str(entry) for entry in imports(source) if entry.in_function and LAZY not in entry.text]


def reachable(room: str) -> set[str]:
    """The rooms that a room may come to use, through others."""
    seen: set[str] = set()
    ahead = [room]
    while ahead:
        for entry in MAY_IMPORT[ahead.pop()]:
            following = entry.partition(".")[0]
            if following not in seen:
                seen.add(following)
                ahead.append(following)
    return seen


def entries(cell: str) -> set[str]:
    """The rooms and modules that a cell of the documented table names, groups spelled out."""
    named = set(re.findall(r"`([\w./]+)`", cell))
    groups = [part.strip() for part in re.sub(r"`[^`]*`|;.*", "", cell).split(",")]
    return named.union(*(GROUPS[group] for group in groups if group))


def documented_rows(text: str) -> list[tuple[str, set[str]]]:
    """Each room of the table in ARCHITECTURE.md with what it says the room may import."""
    table = text.partition("| room |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?`) \|.*?\|(.*)\|$", table, re.MULTILINE)
    return [
        (re.sub(r"/$|\.py$", "", room), entries(allowed))
        for names, allowed in rows
        for room in re.findall(r"`([\w./]+)`", names)
    ]


def documented_groups(text: str) -> dict[str, set[str]]:
    found = re.findall(r"^- \*([\w ]+)\*: ((?:.|\n(?!- |\n))*)", text, re.MULTILINE)
    return {name: entries(re.split(r"[;:.]\s|\.$", members)[0]) for name, members in found}


def planted(folder: Path, files: Mapping[str, str]) -> Path:
    """A package like ours with these files in it."""
    source = folder / PACKAGE
    for name, text in {"exceptions.py": "", **files}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    return source


def test_every_room_has_a_row() -> None:
    assert rooms(SOURCE) - MAY_IMPORT.keys() == set()


def test_no_file_imports_a_room_it_may_not() -> None:
    problems = foreign_imports(SOURCE)
    assert not problems, "\n".join(problems)


def test_engine_wire_and_exceptions_import_no_further_library() -> None:
    problems = foreign_libraries(SOURCE)
    assert not problems, "\n".join(problems)


def test_two_files_alone_import_the_mcp_library_and_by_public_names() -> None:
    targets = [entry for entry in imports(SOURCE) if entry.target.partition(".")[0] == "mcp"]
    files = {str(entry.file.relative_to(SOURCE)) for entry in targets}
    assert files == {"tools/mcp/session.py", "tools/mcp/oauth.py"}
    assert [str(entry) for entry in targets if "._" in entry.target] == []


def test_no_import_hides_in_a_function_without_a_reason() -> None:
    problems = hidden_imports(SOURCE)
    assert not problems, "\n".join(problems)


def test_architecture_shows_this_table() -> None:
    documented = documented_rows(ARCHITECTURE.read_text(encoding="utf-8"))
    assert sorted(room for room, _ in documented) == sorted(MAY_IMPORT)
    differing = {
        room: {"missing": MAY_IMPORT[room] - said, "too many": said - MAY_IMPORT[room]}
        for room, said in documented
        if said != MAY_IMPORT[room]
    }
    assert differing == {}


def test_architecture_spells_the_groups_out() -> None:
    groups = documented_groups(ARCHITECTURE.read_text(encoding="utf-8"))
    assert {name: groups.get(name) for name in GROUPS} == dict(GROUPS)


def test_rows_name_rooms_that_have_rows() -> None:
    named = {entry.partition(".")[0] for row in MAY_IMPORT.values() for entry in row}
    assert named <= MAY_IMPORT.keys()


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_no_room_can_come_back_to_itself(room: str) -> None:
    assert room not in reachable(room)


@pytest.mark.parametrize("surface", sorted(SURFACES))
def test_surface_reaches_no_other_surface_and_no_store_or_model(surface: str) -> None:
    assert reachable(surface) & (SURFACES | BACK_ROOMS) <= {"authorization"}


@pytest.mark.parametrize("room", sorted(BACK_ROOMS))
def test_back_room_reaches_no_other_back_room_and_no_surface(room: str) -> None:
    assert reachable(room) & (SURFACES | BACK_ROOMS | {"http", "wiring"}) == set()


@requirement("S001-isolation-imports")
@pytest.mark.parametrize(
    ("room", "other"), [("tealagents", "skagents"), ("skagents", "tealagents")]
)
def test_neither_agent_surface_imports_the_other(room: str, other: str) -> None:
    crossing = [
        str(entry)
        for entry in imports(SOURCE)
        if room_of(entry.file, SOURCE) == room and is_allowed(entry.target, {f"{PACKAGE}.{other}"})
    ]
    assert crossing == []


@requirement("S001-isolation-imports")
@pytest.mark.parametrize(
    "line",
    [
        "from sk_agents.skagents.v1.chat import Chat",
        "from sk_agents.skagents import v1",
        "from sk_agents import skagents",
        "import sk_agents.skagents.v1 as other",
        "if True:\n    import sk_agents.skagents",
    ],
)
def test_import_of_skagents_in_tealagents_is_named_with_file_and_line(
    tmp_path: Path, line: str
) -> None:
    text = f'"""Docs."""\n\n{line}\n'
    source = planted(
        tmp_path, {"tealagents/v1alpha1/agent.py": text, "skagents/v1/chat.py": "class Chat: ..."}
    )
    number = 3 + line.count("\n")
    shown = line.splitlines()[-1].strip()
    file = source / "tealagents/v1alpha1/agent.py"
    assert foreign_imports(source) == [f"{file}:{number}: {shown}"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("chats/routes.py", "from sk_agents.persistence.sqlite.store import SqliteStore"),
        ("engine/loop.py", "from sk_agents.http.errors import status"),
        ("engine/loop.py", "from sk_agents.ska_types import AgentTask"),
        ("llm/openai.py", "from sk_agents.tools.toolbox import Toolbox"),
        ("persistence/sql.py", "from sk_agents.config.agent_file import AgentFile"),
        ("http/sse.py", "from sk_agents.authorization.dummy_authorizer import DummyAuthorizer"),
        ("exceptions.py", "from sk_agents.engine.models import Thread"),
        ("engine/loop.py", "from . import state"),
    ],
)
def test_planted_violation_is_found(tmp_path: Path, file: str, line: str) -> None:
    others = {
        f"{room}/__init__.py": "" for room in (*BACK_ROOMS, "engine", "http", "config", "chats")
    }
    source = planted(tmp_path, {**others, "ska_types.py": "", file: line})
    assert foreign_imports(source) == [f"{source / file}:1: {line}"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("chats/routes.py", "from sk_agents.engine.events import Event"),
        ("engine/loop.py", "from sk_agents.engine import state"),
        ("persistence/sql.py", "from sk_agents.config import class_loader"),
        ("http/health.py", "from sk_agents import __version__, exceptions"),
        ("http/caller.py", "from sk_agents.authorization.request_authorizer import Authorizer"),
    ],
)
def test_import_that_the_table_allows_is_not_reported(tmp_path: Path, file: str, line: str) -> None:
    others = {f"{room}/__init__.py": "" for room in ("engine", "config", "authorization")}
    assert foreign_imports(planted(tmp_path, {**others, file: line})) == []


def test_room_without_a_row_is_found(tmp_path: Path) -> None:
    source = planted(tmp_path, {"parlour/tea.py": "import sk_agents.exceptions"})
    assert rooms(source) - MAY_IMPORT.keys() == {"parlour"}
    assert len(foreign_imports(source)) == 1


def test_library_in_the_engine_is_found(tmp_path: Path) -> None:
    text = "import json\nimport pydantic\nimport orjson.x\nfrom fastapi import FastAPI\n"
    source = planted(tmp_path, {"engine/loop.py": text, "http/app.py": text})
    file = source / "engine/loop.py"
    assert foreign_libraries(source) == [
        f"{file}:3: import orjson.x",
        f"{file}:4: from fastapi import FastAPI",
    ]


def test_import_in_a_function_is_found_unless_it_is_excused(tmp_path: Path) -> None:
    text = f"import os\ndef f():\n    import json\nasync def g():\n    import re  {LAZY}\n"
    source = planted(tmp_path, {"engine/loop.py": text})
    assert hidden_imports(source) == [f"{source / 'engine/loop.py'}:3: import json"]
