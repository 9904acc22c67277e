"""A copy of the project, and processes forked from this one that run tests in it.

Nothing here changes the project itself. This process must not import the package: its children do.
One of them collects the tests of a module and is forked once more for each mutant, whose code the
functions then get; a mistake in what an import does takes a process that imports and collects anew.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn, Self

import coverage
import pytest

from tests.mutants.functions import (
    NotInAFunction,
    functions_there_are,
    replace_functions,
)
from tests.mutants.operators import Mutant

ROOT = Path(__file__).parent.parent.parent
COPIED = ("pyproject.toml", "src", "tests", "docs", "demos")
NOT_COPIED = shutil.ignore_patterns("__pycache__", "ui_dist", ".*")
OPTIONS = [
    "-q",
    "-rfE",
    "--assert=plain",
    "--tb=line",
    "-p",
    "no:cacheprovider",
    "--hypothesis-seed=0",
]
# Loaded once for all children; most tests need most of them.
LIBRARIES = "aiohttp apsw fastapi httpx hypothesis jsonschema mcp orjson prometheus_client uvicorn"
# A mutant may well wait for what never comes.
HANGING_SECONDS = 30
FORK = multiprocessing.get_context("fork")

# A module's file, its source and the mutant's, and the tests that are to be run.
Work = tuple[str, str, str, list[str]]

# What pytest's exit codes mean here, and one of our own.
PASSED, NOT_FOUND = 0, (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
HAS_TO_BE_IMPORTED = 77


@dataclass(frozen=True, slots=True)
class Baseline:
    """How the unchanged package fares: how long each test takes, and which lines it executes.

    `lines` names the tests by module and line; a line that is executed by an import names none.
    """

    seconds: dict[str, float]
    failed: list[str]
    lines: dict[str, dict[int, list[str]]]

    def tests_of(self, mutant: Mutant, killers: Counter[str]) -> list[str]:
        """The tests that execute what is mutated: those that killed most before, then by time."""
        found = self._executing(mutant.module, mutant.statement, mutant.last_line)
        if not found and mutant.coroutine is not None:
            # Python 3.11 reports no line of a coroutine that goes on after it was cancelled within.
            found = self._executing(mutant.module, *mutant.coroutine)
        if "" in found:
            found = {test for tests in self.lines[mutant.module].values() for test in tests}
        tests = found - {"", *self.failed}
        return sorted(tests, key=lambda test: (-killers[test], self.seconds.get(test, 0.0)))

    def _executing(self, module: str, first_line: int, last_line: int) -> set[str]:
        lines = self.lines.get(module, {})
        return {test for line in range(first_line, last_line + 1) for test in lines.get(line, ())}


def load_libraries() -> None:
    for name in LIBRARIES.split():
        importlib.import_module(name)


class Workshop:
    """A folder with a copy of the project, in which one run of tests at a time takes place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: Running | None = None
        self._collection: _Collection | None = None
        folder.mkdir()
        for name in COPIED:
            place = ROOT / name
            if place.is_dir():
                shutil.copytree(place, folder / name, ignore=NOT_COPIED)
            else:
                shutil.copy(place, folder / name)

    def source(self, module: str) -> Path:
        return self.folder / "src" / "sk_agents" / (module.replace(".", "/") + ".py")

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        place = self.source(mutant.module)
        original = place.read_text()
        # Bytecode is known by its source's time and size, and a mutant may have both.
        compiled = Path(cache_from_source(str(place)))
        compiled.unlink(missing_ok=True)
        place.write_text(mutant.applied(original))
        try:
            yield
        finally:
            place.write_text(original)
            compiled.unlink(missing_ok=True)

    def learn(self, tests: Sequence[str], modules: Sequence[str]) -> Running:
        """Run the tests on the unchanged package; `baseline` has what was learned."""
        files = {module: str(self.source(module)) for module in modules}
        self._running = Process(self, _learn, list(tests), files)
        return self._running

    def baseline(self) -> Baseline:
        learned = json.loads((self.folder / "learned.json").read_text())
        lines = {
            module: {int(line): tests for line, tests in found.items()}
            for module, found in learned["lines"].items()
        }
        return Baseline(learned["seconds"], learned["failed"], lines)

    def run(self, tests: Sequence[str]) -> Running:
        """Run these tests until the first that fails."""
        self._running = Process(self, _run, list(tests))
        return self._running

    def collect(self, tests: Sequence[str]) -> None:
        """Have a process import the package and collect these tests, before anything is
        `changed`: or all its forks would have that change too."""
        if self._collection is None or self._collection.tests != tests:
            self._end_collection()
            self._collection = _Collection(self, tests)
            self._collection.wait()

    def run_collected(self, mutant: Mutant, original: str, tests: Sequence[str]) -> Running:
        """The same in a fork of the process that has collected them.

        It ends with `HAS_TO_BE_IMPORTED` if the mutant is not within a function.
        """
        assert self._collection is not None
        file = str(self.source(mutant.module))
        work = (file, original, mutant.applied(original), list(tests))
        self._running = self._collection.run(self, work)
        return self._running

    def _end_collection(self) -> None:
        if self._collection is not None:
            self._collection.process.end()
            self._collection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Whoever is interrupted leaves nothing running."""
        if self._running is not None:
            self._running.end()
        self._end_collection()


class Running(ABC):
    """Tests at work in a process that leads a group of its own."""

    def __init__(self, workshop: Workshop) -> None:
        self.started = time.monotonic()
        self.output = workshop.folder / "output.txt"

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def failed_test(self) -> str | None:
        """The test that failed, as pytest's summary names it."""
        found = re.findall(r"^FAILED (.+?)(?: - .*)?$", self.output.read_text(), re.MULTILINE)
        return found[-1] if found else None

    @property
    @abstractmethod
    def is_at_work(self) -> bool: ...

    @property
    @abstractmethod
    def sentinel(self) -> int | Connection:
        """What to wait for: it is ready when something has happened."""

    @abstractmethod
    def end(self) -> int | None:
        """End it and what it started; its exit code, `None` if it was still at work."""


class Process(Running):
    """It imports all that it needs."""

    def __init__(self, workshop: Workshop, work: Any, *arguments: Any) -> None:
        super().__init__(workshop)
        self._process = FORK.Process(
            target=_begin, args=(workshop.folder, self.output, work, *arguments)
        )
        self._process.start()

    @property
    def is_at_work(self) -> bool:
        return self._process.is_alive()

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    def end(self) -> int | None:
        code = self._process.exitcode
        _end_group(self._process.pid)
        self._process.kill()
        self._process.join()
        return code


class Fork(Running):
    """A fork of the process that has collected the tests; its time begins with its work."""

    def __init__(self, workshop: Workshop, collecting: Process, pipe: Connection) -> None:
        super().__init__(workshop)
        self._collecting = collecting
        self._pipe = pipe
        self._pid: int | None = None
        self._code: int | None = None

    @property
    def is_at_work(self) -> bool:
        while self._code is None and self._pipe.poll():
            self._hear()
        return self._code is None

    def _hear(self) -> None:
        """The fork says its number, and the process that has collected says how it ended."""
        try:
            number = self._pipe.recv()
        except EOFError:
            sys.exit(f"the tests could not be collected:\n{self.output.read_text()}")
        if self._pid is None:
            self._pid, self.started = number, time.monotonic()
        else:
            self._code = number

    @property
    def sentinel(self) -> Connection:
        return self._pipe

    def end(self) -> int | None:
        code = self._code
        if self._pid is None:
            self._collecting.end()
            return code
        _end_group(self._pid)
        while self._code is None:
            self._hear()
        return code


class _Collection:
    """A process that has collected tests, and waits for mutants to run some of them with."""

    def __init__(self, workshop: Workshop, tests: Sequence[str]) -> None:
        self.tests = tests
        self._pipe, theirs = FORK.Pipe()
        self.process = Process(workshop, _collect, list(tests), theirs, self._pipe)
        theirs.close()

    def wait(self) -> None:
        """Until they are collected."""
        try:
            self._pipe.recv()
        except EOFError:
            sys.exit(f"the tests could not be collected:\n{self.process.output.read_text()}")

    def run(self, workshop: Workshop, work: Work) -> Fork:
        self._pipe.send(work)
        return Fork(workshop, self.process, self._pipe)


def wait_for(running: Sequence[Running], seconds: float) -> None:
    """Until something has happened to one of them, or the time is over."""
    wait([one.sentinel for one in running], seconds)


def _end_group(pid: int | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid or 0, signal.SIGKILL)


def _begin(folder: Path, output: Path, work: Any, *arguments: Any) -> NoReturn:
    os.setsid()
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    scratch = _empty_scratch()
    os.environ.update(
        PYTHONPATH=f"{folder / 'src'}{os.pathsep}{folder}",
        TMPDIR=str(scratch),
        HYPOTHESIS_STORAGE_DIRECTORY=str(scratch / "hypothesis"),
    )
    ours = {str(ROOT), str(ROOT / "src"), ""}
    sys.path[:] = [str(folder / "src"), str(folder), *(one for one in sys.path if one not in ours)]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "sk_agents")]:
        del sys.modules[name]
    code = work(*arguments)
    sys.stdout.flush()
    os._exit(code)


def _empty_scratch() -> Path:
    scratch = Path("tmp").absolute()
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    return scratch


def _run(tests: list[str], *plugins: object) -> int:
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    arguments = [*OPTIONS, "-x", f"--timeout={HANGING_SECONDS}", *tests]
    return int(pytest.main(arguments, plugins=plugins))


def _collect(tests: list[str], requests: Connection, others: Connection) -> int:
    others.close()
    return _run(tests, _Forking(requests))


class _Forking:
    """Instead of running the tests it has collected it is forked for each mutant."""

    def __init__(self, requests: Connection) -> None:
        self._requests = requests

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        self._functions = functions_there_are()
        # Or each fork would copy what its first collection of garbage looks at.
        gc.freeze()
        self._requests.send(None)
        while True:
            try:
                work: Work = self._requests.recv()
            except EOFError:
                return True
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                self._become(work, session)
                return None
            _, status = os.waitpid(pid, 0)
            self._requests.send(os.waitstatus_to_exitcode(status))

    def _become(self, work: Work, session: pytest.Session) -> None:
        os.setsid()
        self._requests.send(os.getpid())
        os.ftruncate(1, 0)
        os.lseek(1, 0, os.SEEK_SET)
        _empty_scratch()
        file, original, mutated, tests = work
        try:
            replace_functions(self._functions, file, original, mutated)
        except NotInAFunction:
            os._exit(HAS_TO_BE_IMPORTED)
        places = {test: at for at, test in enumerate(tests)}
        chosen = [one for one in session.items if one.nodeid in places]
        session.items = sorted(chosen, key=lambda one: places[one.nodeid])


def _learn(tests: list[str], files: dict[str, str]) -> int:
    measured = coverage.Coverage(data_file=None, source=["src/sk_agents"], branch=False)
    measured.start()
    watcher = _Watcher(measured)
    code = int(pytest.main([*OPTIONS, *tests], plugins=[watcher]))
    measured.stop()
    data = measured.get_data()
    learned = {
        "seconds": watcher.seconds,
        "failed": sorted(watcher.failed),
        "lines": {module: data.contexts_by_lineno(file) for module, file in files.items()},
    }
    Path("learned.json").write_text(json.dumps(learned))
    return code


class _Watcher:
    """Tells the coverage which test is at work, and keeps how long each took."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._measured.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = self.seconds.get(report.nodeid, 0.0)
        self.seconds[report.nodeid] = spent + report.duration
        if report.failed:
            self.failed.add(report.nodeid)
