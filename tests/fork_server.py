"""Programs of ours that tests start by the dozen, forked from a process that has imported them.

Starting a server takes a second of work, nearly all of it imports, the same each time. A command
that begins with `PYTHON` instead of `sys.executable` is run by a copy of a process that has done
that work: a process of its own like any other, a child of the test's, to be killed as one.

Where coverage is measured, as CI does, and on systems other than Linux, every start is a plain one.
So are starts with options or variables that Python reads at its own start.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, TextIO

ROOT = Path(__file__).parent.parent
# What takes long to import, by the program that needs it.
IMPORTS: Mapping[str, Sequence[str]] = {
    "sk_agents": ("sk_agents.cli.serve", "sk_agents.client", "uvloop"),
    "tests.chaos.engine_process": ("sk_agents.tools.mcp.servers", "sk_agents.wiring"),
}
PR_SET_CHILD_SUBREAPER = 36
REQUEST_BYTES = 1 << 20
# Options of `Popen` that are met, and the values of others that may be left alone.
_MET = {"args", "executable", "cwd", "env", "start_new_session", "close_fds", "restore_signals"}
_MET |= {"p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"}
_DEFAULTS = (None, (), 0, -1, False)
_READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_")


class Python(str):
    """The interpreter, in a command that may be run by a fork."""


PYTHON = Python(sys.executable)


class ForkingPopen(subprocess.Popen[Any]):
    """A `Popen` that has commands of `PYTHON` run by the fork server where it can."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        plain = super()._execute_child  # type: ignore[misc]  # not in its stub
        given = inspect.signature(plain).bind(args, *rest).arguments
        if not (isinstance(args, Sequence) and args and isinstance(args[0], Python)):
            plain(args, *rest)
            return
        environment = os.environ if given["env"] is None else given["env"]
        if not _can_fork(given, environment):
            plain(args, *rest)
            return
        files = [
            theirs if theirs != -1 else own
            for own, theirs in enumerate((given["p2cread"], given["c2pwrite"], given["errwrite"]))
        ]
        request = {
            "arguments": [os.fsdecode(argument) for argument in args[1:]],
            "folder": os.fsdecode(given["cwd"] or os.getcwd()),
            "environment": dict(environment),
            "session": bool(given["start_new_session"]),
        }
        self.pid = fork_server().start(request, files)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[pipe] for pipe in pipes))  # type: ignore[attr-defined]  # as well


def _can_fork(given: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    if any(value not in _DEFAULTS for name, value in given.items() if name not in _MET):
        return False
    names = {name for name in (*environment, *os.environ) if name.startswith(_READ_AT_START)}
    return all(environment.get(name) == os.environ.get(name) for name in names)


class ForkServer:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def start(self, request: Mapping[str, Any], files: Sequence[int]) -> int:
        """The id of the new process, a child of this one."""
        with self._lock:
            _adopt(True)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], files)
                return int(self._socket.recv(32))
            finally:
                _adopt(False)


@cache
def fork_server() -> ForkServer:
    return ForkServer()


def _adopt(wanted: bool) -> None:
    """Whether a process whose parent ends becomes a child of this one."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def use_forks() -> None:
    is_measured = any(name.startswith("COV") for name in os.environ)
    if sys.platform == "linux" and not is_measured:
        subprocess.Popen = ForkingPopen  # type: ignore[misc]  # asyncio and `run` take it from there


def serve(requests: socket.socket) -> list[str]:
    """In the server: until nobody asks any more. In each of its copies: what to run."""
    while True:
        request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 3)
        if not request:
            sys.exit()
        asked = json.loads(request)
        _import_for(asked["arguments"])
        told, tell = os.pipe()
        if between := os.fork():
            # Its child is adopted by the test's process once it has ended.
            os.waitpid(between, 0)
            requests.send(os.read(told, 32))
            for file in (told, tell, *files):
                os.close(file)
            continue
        between = os.getpid()
        if child := os.fork():
            os.write(tell, str(child).encode())
            os._exit(0)
        while os.getppid() == between:
            os.sched_yield()
        requests.detach()  # it is closed with all others
        return _changed_into(asked, files)


def _import_for(arguments: Sequence[str]) -> None:
    for program in IMPORTS.keys() & set(arguments):
        for module in IMPORTS[program]:
            importlib.import_module(module)
    gc.freeze()


def _changed_into(request: Mapping[str, Any], files: Sequence[int]) -> list[str]:
    for own, given in enumerate(files):
        os.dup2(given, own)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed()
    sys.path[0] = request["folder"]
    sys.stdin = _stream(0, "rb", sys.stdin)
    sys.stdout = _stream(1, "wb", sys.stdout)
    sys.stderr = _stream(2, "wb", sys.stderr)
    arguments: list[str] = request["arguments"]
    return arguments


def _stream(file: int, mode: Literal["rb", "wb"], old: TextIO) -> TextIO:
    """As Python makes it at its start. The old one took the file for what it was before."""
    is_buffered = mode == "rb" or "PYTHONUNBUFFERED" not in os.environ
    return TextIOWrapper(
        open(file, mode, buffering=-1 if is_buffered else 0),
        old.encoding,
        old.errors,
        newline=None if mode == "rb" else "\n",
        line_buffering=file == 2 or os.isatty(file),
        write_through=not is_buffered,
    )


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    match serve(socket.socket(fileno=int(sys.argv[1]))):
        case ["-m", module, *arguments]:
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *arguments]:
            sys.argv = ["-c", *arguments]
            exec(code, {"__name__": "__main__"})
        case other:
            raise ValueError(f"neither a module nor code: {other}")


if __name__ == "__main__":
    main()
