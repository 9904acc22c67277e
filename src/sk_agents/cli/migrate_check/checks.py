"""What is looked at in a folder. Nothing of it is run here: the last check starts `teal doctor`."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from sk_agents.cli.doctor.findings import Finding, State, report
from sk_agents.cli.options import Exit
from sk_agents.config.agent_file import USUAL_PATH, load_agent_files
from sk_agents.config.foreign_variables import foreign_variables
from sk_agents.config.public_names import import_hint
from sk_agents.config.public_paths import own_module
from sk_agents.config.settings import CATALOG_PATH, PAIRS, PREFIX, Settings, variable
from sk_agents.exceptions import ConfigurationError
from sk_agents.stand_ins import answer_imports

CATALOG_FILES = (variable("plugin_catalog_file"), CATALOG_PATH, variable("remote_plugin_path"))
MODULES = [
    *(variable(module) for module, _ in PAIRS),
    variable("plugin_module"),
    variable("types_module"),
]
# Names that our stand-ins answer for.
THEIRS = ("semantic_kernel", "ska_utils", "sk_agents")
# A folder of agents is small; one that is not has its environment in it.
MOST_FILES = 500
SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", "site-packages"}
SECONDS = 300
STATES: Mapping[str, State] = {"ok": "ok", "warn": "warn", "fail": "fail"}


def check_folder(folder: Path, *, as_json: bool) -> Exit:
    async def checks() -> AsyncIterator[Finding]:
        os.chdir(folder)
        values = {name: value for name, value in dotenv_values(".env").items() if value}
        for finding in (*_variables(values), *_files(values), *_imports(), *_changes(values)):
            yield finding
        async for finding in _loaded(values):
            yield finding

    # The findings say it; what loading logs would say it again.
    logging.getLogger("sk_agents").setLevel(logging.CRITICAL)
    return asyncio.run(report(checks(), as_json=as_json))


def _variables(values: Mapping[str, str]) -> Iterator[Finding]:
    if not Path(".env").is_file():
        yield Finding("variables", "ok", "there is no .env here; variables come from elsewhere")
    foreign = list(foreign_variables(values))
    for found in foreign:
        yield Finding("variables", "fail" if found.stops else "warn", found.name, found.advice)
    names = {found.name for found in foreign}
    honoured = [name for name in values if name.startswith(PREFIX) and name not in names]
    if honoured:
        yield Finding("variables", "ok", f"read as before: {', '.join(sorted(honoured))}")


def _files(values: Mapping[str, str]) -> Iterator[Finding]:
    for name in MODULES:
        module = values.get(name)
        if module is None:
            continue
        ours = own_module(module)
        if ours is not None:
            yield Finding("modules", "ok", f"{name}: {module} is the public project's; here {ours}")
        elif module.endswith(".py") and not Path(module).is_file():
            hint = "bring it along: it is a file of yours, or of the public project's tree"
            yield Finding("modules", "fail", f"{name}: there is no file {module}", hint)
        else:
            yield Finding("modules", "ok", f"{name}: {module}")
    for name in CATALOG_FILES:
        if name in values and not Path(values[name]).is_file():
            hint = "bring it along; a catalog that is missing stops the start"
            yield Finding("catalogs", "fail", f"{name}: there is no file {values[name]}", hint)
        elif name in values:
            yield Finding("catalogs", "ok", f"{name}: {values[name]}")


def _imports() -> Iterator[Finding]:
    """What the Python files import: names that are not there, libraries that are not installed."""
    answer_imports()
    here = {path.stem for path in Path().rglob("*.py")} | {path.name for path in Path().iterdir()}
    missing: dict[str, Path] = {}
    for path in _python_files():
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError) as error:
            yield Finding("imports", "fail", f"{path}: cannot be read: {error}")
            continue
        for module, name, line in _imported(tree):
            top = module.partition(".")[0]
            if top in THEIRS:
                if (reason := _lacks(module, name)) is not None:
                    yield Finding("imports", "fail", f"{path}:{line}: {reason}", import_hint(top))
            elif top not in here and not _is_installed(top):
                missing.setdefault(top, path)
    for top, path in missing.items():
        detail = f"{path}: {top} is not installed here"
        yield Finding("imports", "warn", detail, import_hint(top))


def _python_files() -> Iterator[Path]:
    found = 0
    for folder, folders, files in os.walk("."):
        folders[:] = sorted(set(folders) - SKIPPED)
        for name in sorted(files):
            if name.endswith(".py") and found < MOST_FILES:
                found += 1
                yield Path(folder, name)


def _imported(tree: ast.AST) -> Iterator[tuple[str, str | None, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((alias.name, None, node.lineno) for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield from ((module, alias.name, node.lineno) for alias in node.names)


def _lacks(module: str, name: str | None) -> str | None:
    """Why this import would fail. Nothing of the folder is imported for it."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        return f"there is no module {module}"
    if name not in (None, "*") and not hasattr(found, str(name)):
        try:
            importlib.import_module(f"{module}.{name}")
        except ImportError:
            return f"{module} has no {name}"
    return None


def _is_installed(name: str) -> bool:
    try:
        return name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _changes(values: Mapping[str, str]) -> Iterator[Finding]:
    """What these agents do differently here."""
    paths = _agent_paths(values)
    if not paths:
        hint = "set TA_SERVICE_CONFIG, or put the file at agents/config.yaml"
        yield Finding("agents", "fail", "no agent file is named and none is at its place", hint)
        return
    try:
        files = load_agent_files(paths)
    except ConfigurationError as error:
        yield Finding("agents", "fail", str(error))
        return
    for file in files:
        yield Finding("agents", "ok", f"{file.name} {file.version} ({file.api_version})")
        if file.api_version.startswith("tealagents/"):
            detail = f"{file.name}: a tool that no catalog mentions is asked about"
            hint = "mark what only reads with @tool(effect='read_only'); see docs/approvals.md"
            yield Finding("changes", "warn", detail, hint)
        elif any(name in values for name in CATALOG_FILES[:2]):
            detail = f"{file.name}: a call with requires_hitl is refused: there is no one to ask"
            hint = "move the agent to tealagents/v1alpha1: the file needs only another apiVersion"
            yield Finding("changes", "warn", detail, hint)
    if not {variable("authorizer"), variable("authorizer_module")} & values.keys():
        detail = "without an authorizer the server listens on this host alone"
        hint = "set TA_AUTHORIZER; see docs/authorization.md"
        yield Finding("changes", "warn", detail, hint)


def _agent_paths(values: Mapping[str, str]) -> list[Path]:
    named = values.get(variable("service_config"))
    if named is not None:
        return [Path(named)]
    return [USUAL_PATH] if USUAL_PATH.is_file() else []


async def _loaded(values: Mapping[str, str]) -> AsyncIterator[Finding]:
    """What `teal doctor` says of the configuration; it imports what the files name."""
    known = {variable(name) for name in Settings.model_fields} | {CATALOG_PATH}
    # The folder counts, not what is set where this command is run.
    environ = {name: text for name, text in os.environ.items() if name not in known}
    command = [sys.executable, "-m", "sk_agents", "doctor", "--offline", "--json"]
    command += ["--store", "memory:"]
    process = await asyncio.create_subprocess_exec(
        *command, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate()
        checks: list[dict[str, Any]] = json.loads(said)["checks"]
    except (TimeoutError, ValueError, KeyError):
        if process.returncode is None:
            process.kill()
        hint = "run `teal doctor --offline` in the folder to see why"
        yield Finding("configuration", "fail", "it cannot be loaded", hint)
        return
    for one in checks:
        if one["check"] in ("settings", "configuration", "callers"):
            yield Finding(one["check"], STATES[one["state"]], one["detail"], one["hint"])
