"""Loading a class by name: what works, and the three ways it can fail."""

import sys
import threading
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from sk_agents.config.class_loader import load_class
from sk_agents.exceptions import ClassUnusable, LoadError, ModuleBroken, ModuleMissing
from tests.patience import seconds
from tests.requirements import requirement


class Greeter(ABC):
    @abstractmethod
    def greet(self) -> str: ...


GOOD = """
from {here} import Greeter
class Hello(Greeter):
    def greet(self):
        return "hello"
class Lazy(Greeter):
    pass
class Stranger:
    pass
number = 5
"""


def load(module: str, name: str = "Hello", **options: Path | str) -> type[Greeter]:
    return load_class(module, name, Greeter, **options)  # type: ignore[type-abstract, arg-type]  # a base


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "greeters.py").write_text(GOOD.format(here=__name__))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "greeters", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@requirement("S002-env-module-path")
def test_class_is_found_by_dotted_name_and_by_path(folder: Path) -> None:
    names = ["greeters", "greeters.py", "./greeters.py", str(folder / "greeters.py")]
    assert [load(name)().greet() for name in names] == ["hello"] * 4


def test_relative_path_is_relative_to_the_given_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert load("greeters.py", folder=folder)().greet() == "hello"


def test_file_is_run_once_however_many_threads_ask(folder: Path) -> None:
    path = folder / "greeters.py"
    path.write_text(f"{path.read_text()}\nwith open('runs', 'a') as runs:\n    runs.write('x')\n")
    barrier = threading.Barrier(8)
    found = []

    def ask() -> None:
        barrier.wait(timeout=seconds(5))
        found.append(load(str(path)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=seconds(5))
    assert len(found) == 8
    assert len(set(found)) == 1
    assert (folder / "runs").read_text() == "x"


def test_two_files_of_one_name_are_two_modules(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "greeters.py").write_text(GOOD.format(here=__name__))
    assert load("greeters.py") is not load("other/greeters.py")


@requirement("S001-authorizer-import-failure")
@pytest.mark.parametrize(
    "module",
    ["no_such_module", "greeters.inner", "no.such.module", "no_file.py", ".", "", "a..b", "a b"],
)
def test_absent_module_is_missing(folder: Path, module: str) -> None:
    with pytest.raises(ModuleMissing, match=r"^TA_X: "):
        load(module, source="TA_X")


@requirement("S001-authorizer-import-failure")
@pytest.mark.parametrize("as_path", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        "raise RuntimeError('boom')",
        "import a_library_that_is_not_installed",
        "from greeters import nothing_of_this_name",
        "raise SystemExit(3)",
        "exit()",
        "def broken(:",
        "1 / 0",
    ],
)
def test_module_that_fails_is_broken_not_missing(folder: Path, body: str, as_path: bool) -> None:
    name = f"broken_{abs(hash(body))}"
    (folder / f"{name}.py").write_text(body)
    with pytest.raises(ModuleBroken, match=rf"^TA_X: .*{name}"):
        load(f"{name}.py" if as_path else name, source="TA_X")


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("from semantic_kernel.contents import ChatHistory", "install semantic-kernel beside"),
        ("from semantic_kernel import Kernel", "install semantic-kernel beside"),
        ("from ska_utils import get_telemetry", "docs/migrating.md says which names"),
        ("import sk_agents.skagents.kernel_builder", "docs/migrating.md says which names"),
        ("import a_library_that_is_not_installed", "install the package it comes in"),
    ],
)
def test_import_that_fails_is_reported_with_what_to_do(folder: Path, body: str, hint: str) -> None:
    (folder / "imports.py").write_text(body)
    with pytest.raises(ModuleBroken, match=hint):
        load("imports.py")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("class Broken(:", r"broken_place\.py, line 1\)$"),
        (
            "from sk_agents.tools import tool\n\n@tool(effect='perhaps')\ndef act(): ...",
            r"\(line 3 of .*broken_place\.py\)$",
        ),
    ],
)
def test_failure_of_a_module_names_its_own_line(folder: Path, body: str, place: str) -> None:
    (folder / "broken_place.py").write_text(body)
    with pytest.raises(ModuleBroken, match=place):
        load("broken_place.py")


def test_absent_class_is_told_with_those_that_are_there(folder: Path) -> None:
    with pytest.raises(ClassUnusable, match="has no class 'Greetr'; it has Hello, Lazy"):
        load("greeters.py", "Greetr")


def test_repaired_file_loads_after_a_failure(folder: Path) -> None:
    path = folder / "late.py"
    path.write_text("1 / 0")
    with pytest.raises(ModuleBroken):
        load(str(path))
    path.write_text(GOOD.format(here=__name__))
    assert load(str(path))().greet() == "hello"


@requirement("S001-authorizer-misconfiguration")
@pytest.mark.parametrize("name", ["Goodbye", "Stranger", "number", "Lazy", ""])
def test_absent_foreign_or_abstract_class_is_unusable(folder: Path, name: str) -> None:
    with pytest.raises(ClassUnusable, match=r"^TA_X: "):
        load("greeters.py", name, source="TA_X")


@pytest.mark.parametrize("module", ["greeters", "greeters.py"])
def test_file_that_anybody_may_change_is_refused(folder: Path, module: str) -> None:
    (folder / "greeters.py").chmod(0o666)
    with pytest.raises(LoadError, match="every user of this machine .*: chmod o-w it"):
        load(module, source="TA_X")


def test_file_in_a_folder_that_anybody_may_change_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(LoadError, match="every user of this machine"):
        load("greeters.py")


def test_file_below_the_current_folder_imports_from_there_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does under uvicorn, which the public project starts."""
    agents = folder / "cwd_agents"
    agents.mkdir()
    (agents / "helper.py").write_text(GOOD.format(here=__name__))
    (agents / "custom.py").write_text("from cwd_agents.helper import Hello\n")
    (folder / "json.py").write_text("raise AssertionError('taken for the real one')\n")
    (agents / "other.py").write_text("import json\nfrom cwd_agents.helper import Hello\n")
    monkeypatch.setattr(
        sys, "path", [place for place in sys.path if place not in ("", str(folder))]
    )
    monkeypatch.chdir(agents)
    with pytest.raises(ModuleBroken, match="cwd_agents"):
        load(str(agents / "custom.py"))
    monkeypatch.chdir(folder)
    assert load("cwd_agents/custom.py").__name__ == "Hello"
    assert load("cwd_agents/other.py").__name__ == "Hello"
    assert sys.path[-1] == str(folder)
