"""Programs of ours that tests start by the dozen, forked from a process that has imported them.

Starting a server takes a second of work, nearly all of it imports, the same each time. A command
that begins with `PYTHON` instead of `sys.executable` is run by a copy of a process that has done
that work (`tests/fork_server.py`). The copy is a process like any other: a child of the test's own,
which can be killed.

Where coverage is measured the copies are as well, from the copying on: what is imported is measured
in the tests' own processes. On systems other than Linux every start is a plain one. So is one with
options, or with variables that are read at a program's start.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# The store contract is for everybody, so it knows no `PYTHON`.
KIT_COMMAND = (sys.executable, "-m", "sk_agents.testing.store_worker")
PR_SET_CHILD_SUBREAPER = 36
# Options of `Popen` that are met, and the values of others that may be left alone.
_MET = {"args", "executable", "cwd", "env", "start_new_session", "close_fds", "restore_signals"}
_MET |= {"p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"}
_DEFAULTS = (None, (), 0, -1, False)
# Variables that Python and its libraries read at a program's start.
READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_")

# Variables by which a program is told to measure its coverage.
MEASUREMENT = "COVERAGE_PROCESS_"

# Of those read at a start, what a copy does as it is told, or what makes no difference to it.
MET_BY_THE_FORK = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}


def unmeasured(environment: Mapping[str, str]) -> dict[str, str]:
    """For a program whose coverage is not measured, which takes as much again as its start."""
    return {k: v for k, v in environment.items() if not k.startswith(MEASUREMENT)}


def _interpreter() -> str:
    """A program beside the interpreter that is the interpreter under another name."""
    path = Path(sys.executable).with_name("teal-test-python")
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
    if not path.exists() or path.read_text() != text:
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_text(text)
        new.chmod(0o755)
        new.replace(path)
    return str(path)


PYTHON = _interpreter()


class ForkingPopen(subprocess.Popen[Any]):
    """A `Popen` that has commands of `PYTHON` run by the fork server where it can."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        plain = super()._execute_child  # type: ignore[misc]  # not in its stub
        given = inspect.signature(plain).bind(args, *rest).arguments
        environment = os.environ if given["env"] is None else given["env"]
        if not _may_be_forked(args) or not _can_fork(given, environment):
            plain(args, *rest)
            return
        files = [
            theirs if theirs != -1 else own
            for own, theirs in enumerate((given["p2cread"], given["c2pwrite"], given["errwrite"]))
        ]
        request = {
            "arguments": [os.fsdecode(argument) for argument in args[1:]],
            "folder": os.path.abspath(os.fsdecode(given["cwd"] or "")),
            "environment": dict(environment),
            "session": bool(given["start_new_session"]),
        }
        child = fork_server(os.getpid()).start(request, files)
        if child is None:
            plain(args, *rest)
            return
        self.pid = child
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[pipe] for pipe in pipes))  # type: ignore[attr-defined]  # as well


def _may_be_forked(command: Any) -> bool:
    if isinstance(command, str | bytes | os.PathLike):
        return False
    return command[0] == PYTHON or tuple(command[:3]) == KIT_COMMAND


def _can_fork(given: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    if any(value not in _DEFAULTS for name, value in given.items() if name not in _MET):
        return False
    names = {name for name in environment if name.startswith(READ_AT_START)}
    names |= {name for name in os.environ if name.startswith("PYTHON")}
    names -= MET_BY_THE_FORK
    return all(environment.get(name, "") == os.environ.get(name, "") for name in names)


class ForkServer:
    """This process's own, started when it is first needed."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                # Its copies begin their measurement, which one that has begun would keep them from.
                env=unmeasured(os.environ),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.pid = self._process.pid
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def start(self, request: Mapping[str, Any], files: Sequence[int]) -> int | None:
        """The id of the new process, a child of this one; none if what it needs fails to import."""
        with self._lock:
            _adopt(True)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], files)
                answer = self._socket.recv(32)
            except ConnectionError:
                return None
            except BaseException:
                # A test that ran out of time. An answer that still comes is not the next one's.
                self._socket.close()
                fork_server.cache_clear()
                raise
            finally:
                _adopt(False)
        return int(answer) if answer else None


@cache
def fork_server(pid: int) -> ForkServer:
    """That of the process with this id: a fork of it needs another."""
    return ForkServer()


def _adopt(wanted: bool) -> None:
    """Whether a process whose parent ends becomes a child of this one."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def use_forks() -> None:
    if sys.platform == "linux":
        subprocess.Popen = ForkingPopen  # type: ignore[misc]  # asyncio and `run` take it from there
