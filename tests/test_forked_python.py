"""A forked program behaves as one that was started; see `tests/forked_python.py`."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from coverage import CoverageData

from sk_agents.engine.failpoints import failpoint
from tests.forked_python import MEASUREMENT, PYTHON, ForkingPopen, fork_server, unmeasured
from tests.missing import lacks
from tests.patience import seconds

# What the program that forks has imported, and a fresh one has not.
IS_FORK = "import sys; print('runpy' in sys.modules)"
TELL = (
    "import os, sys;"
    "print(os.getcwd(), os.getppid(), os.environ['GIVEN'], 'PATH' in os.environ, sys.argv[1:],"
    " sys.stdin.read());"
    "print('trouble', file=sys.stderr); sys.exit(7)"
)


@pytest.mark.parametrize("python", [sys.executable, PYTHON], ids=["started", "forked"])
def test_program_gets_what_it_is_given_and_tells_how_it_ended(tmp_path: Path, python: str) -> None:
    done = subprocess.run(
        [python, "-c", TELL, "one", b"t\xffo"],
        cwd=tmp_path,
        env={**{k: v for k, v in os.environ.items() if k != "PATH"}, "GIVEN": "this"},
        input="said",
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert done.stdout == f"{tmp_path} {os.getpid()} this False ['one', 't\\udcffo'] said\n"
    assert (done.returncode, done.stderr) == (7, "trouble\n")


@pytest.mark.parametrize("python", [sys.executable, PYTHON], ids=["started", "forked"])
def test_end_of_a_program_is_whole(tmp_path: Path, python: str) -> None:
    """Its threads are waited for, and what it and its modules have made is taken apart."""
    made = "class Made:\n    def __del__(self):\n        print(type(self).__module__, 'is gone')\n"
    (tmp_path / "its_own.py").write_text(f"{made}\nmade = Made()\n")
    (tmp_path / "program.py").write_text(
        "import atexit, its_own, threading, time\n"
        f"{made}\nmade = Made()\n"
        "atexit.register(print, 'at the end')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('after a while'))).start()\n"
    )
    done = subprocess.run(
        [python, "program.py"],
        cwd=tmp_path,
        env=unmeasured(os.environ),  # what is measured is still held at the end
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *gone = done.stdout.splitlines()
    assert (first, second) == ("after a while", "at the end")
    assert {*gone} == {"__main__ is gone", "its_own is gone"}


async def test_program_can_be_killed(tmp_path: Path) -> None:
    code = "import time; print('here', flush=True); time.sleep(600)"
    process = await asyncio.create_subprocess_exec(PYTHON, "-c", code, stdout=PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(seconds(60)):
        assert await process.stdout.readline() == b"here\n"
        process.kill()
        assert await process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("given", "is_fork"),
    [({}, True), ({"PYTHONHASHSEED": "1"}, False), ({"PYTHONUNBUFFERED": "1"}, True)],
    ids=["none", "read at its start", "met by a fork"],
)
def test_variable_that_is_read_at_a_start_needs_one(given: dict[str, str], is_fork: bool) -> None:
    done = subprocess.run(
        [PYTHON, "-c", IS_FORK],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds(60),
    )
    assert done.stdout == f"{is_fork and subprocess.Popen is ForkingPopen}\n"


def test_failpoint_of_a_fork_is_the_one_that_its_variable_names() -> None:
    code = "from sk_agents.engine.failpoints import failpoint; failpoint('{}')"
    # The process that is copied has imported it without one.
    subprocess.run([PYTHON, "-m", "sk_agents", "--version"], check=True, capture_output=True)
    for name, ended in (("committing", -signal.SIGKILL), ("claimed", 0)):
        done = subprocess.run(
            [PYTHON, "-c", code.format(name)],
            env={**os.environ, "TEAL_FAILPOINT": "committing:kill"},
            timeout=seconds(60),
        )
        assert done.returncode == ended


@pytest.mark.parametrize("python", [sys.executable, PYTHON], ids=["started", "forked"])
def test_program_is_measured_where_it_is_to_be(tmp_path: Path, python: str) -> None:
    settings = tmp_path / "measuring.ini"
    settings.write_text(
        f"[run]\ndata_file = {tmp_path / 'measured'}\nparallel = true\nsource = sk_agents\n"
    )
    # The process that is copied has imported the function, and measured nothing.
    subprocess.run([PYTHON, "-m", "sk_agents", "--version"], check=True, capture_output=True)
    subprocess.run(
        [python, "-c", "from sk_agents.engine.failpoints import failpoint; failpoint('any')"],
        env={**unmeasured(os.environ), f"{MEASUREMENT}START": str(settings)},
        check=True,
        timeout=seconds(60),
    )
    (file,) = tmp_path.glob("measured.*")
    measured = CoverageData(str(file))
    measured.read()
    lines, first = inspect.getsourcelines(failpoint)
    body = range(first + 1, first + len(lines))
    assert {*body} & {*(measured.lines(inspect.getfile(failpoint)) or ())}


def test_program_after_a_start_that_was_cut_off_is_its_own() -> None:
    def give_up(*_: object) -> None:
        raise InterruptedError("the test's time is over")

    if sys.platform != "linux":
        lacks("linux", "programs are forked on Linux alone")
    subprocess.run([PYTHON, "-c", ""], check=True)
    server = fork_server(os.getpid()).pid
    before = signal.signal(signal.SIGUSR1, give_up)
    os.kill(server, signal.SIGSTOP)
    interrupt = f"import os; os.kill({os.getpid()}, {int(signal.SIGUSR1)})"
    try:
        with subprocess.Popen([sys.executable, "-c", interrupt]):
            with pytest.raises(InterruptedError, match="time is over"):
                subprocess.run([PYTHON, "-c", "raise SystemExit(1)"], check=False)
    finally:
        os.kill(server, signal.SIGCONT)
        signal.signal(signal.SIGUSR1, before)
    done = subprocess.run([PYTHON, "-c", "raise SystemExit(2)"], timeout=seconds(60))
    assert done.returncode == 2
