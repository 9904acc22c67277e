"""A process that imports what our programs need, and forks one whenever it is asked to.

Asked by `tests/forked_python.py` over the socket that is its argument, until that is closed. It
has one thread, so that a copy of it lacks nothing.

Usage: python -m tests.fork_server SOCKET
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from types import ModuleType
from typing import Any, Literal, TextIO

import coverage

REQUEST_BYTES = 1 << 20
FAILPOINTS = "sk_agents.engine.failpoints"
# What takes long to import, by the program that needs it.
IMPORTS: Mapping[str, Sequence[str]] = {
    "sk_agents": (
        *("sk_agents.cli.command", "sk_agents.cli.serve", "sk_agents.cli.launch"),
        *("sk_agents.client", "uvloop", "apsw"),
        *("sk_agents.cli.chats", "sk_agents.cli.chat_session", "rich.live", "rich.markdown"),
        *("sk_agents.appv1", "sk_agents.appv2", "sk_agents.appv3", "sk_agents.llm.scripted"),
        *("sk_agents.persistence.sqlite.store", "sk_agents.http.uvicorn_protocol"),
        *("uvicorn.lifespan.off", "uvicorn.loops.uvloop", "uvicorn.protocols.http.httptools_impl"),
    ),
    "todo_server": ("mcp.server.mcpserver", "sk_agents.exceptions", "uvicorn"),
    "friendly.py": ("mcp.server.mcpserver", "uvicorn"),
    "hostile.py": (),
    "sk_agents.testing.store_worker": ("sk_agents.wiring", "apsw"),
    "tests.chaos.ledger": ("asyncio", "tests.patience"),
    "tests.stores.second_process": ("sk_agents.persistence.sqlite.store",),
    "tests.stores.sqlite_faults": ("sk_agents.persistence.sqlite.store", "pytest"),
    "tests.chaos.committer": ("sk_agents.persistence.store_factory", "apsw"),
    "tests.stores.encrypting_process": ("sk_agents.persistence.store_encryption", "apsw"),
    "tests.chaos.engine_process": ("sk_agents.tools.mcp.servers", "sk_agents.wiring"),
}
# What an interpreter that ends may still ask for.
KEPT = {*sys.builtin_module_names, "__main__", "encodings", "encodings.utf_8", "io", "threading"}
# Those that have been, by their names.
IMPORTED: dict[str, ModuleType] = {}


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
            answer = os.read(told, 32)
            try:
                requests.send(answer)
            except BrokenPipeError:  # the test gave up, so nobody else would end the copy
                os.kill(int(answer), signal.SIGKILL)
                sys.exit()
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
    for program in IMPORTS.keys() & {os.path.basename(argument) for argument in arguments}:
        for module in IMPORTS[program]:
            importlib.import_module(module)
    IMPORTED.update((name, sys.modules[name]) for name in sys.modules.keys() - KEPT)
    gc.freeze()


def _keep_imported() -> None:
    """At the end of a copy, what it shares with the others is not taken apart: its memory would be
    copied for that, which is a third of what a short program takes. Its own modules are."""
    for name in IMPORTED:
        sys.modules.pop(name, None)
    kept = [IMPORTED, *sys.path_importer_cache.values()]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def _changed_into(request: Mapping[str, Any], files: Sequence[int]) -> list[str]:
    for own, given in enumerate(files):
        os.dup2(given, own)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    coverage.process_startup()  # if the environment asks for it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    random.seed()
    if FAILPOINTS in sys.modules:  # it reads the environment when it is imported
        importlib.reload(sys.modules[FAILPOINTS])
    sys.path[0] = request["folder"]
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    _set_stream("stdin", _stream(0, "rb", sys.stdin))
    _set_stream("stdout", _stream(1, "wb", sys.stdout))
    _set_stream("stderr", _stream(2, "wb", sys.stderr))
    arguments: list[str] = request["arguments"]
    return arguments


def _set_stream(name: str, stream: TextIO) -> None:
    """Under both names: an interpreter that ends goes back to the second."""
    for attribute in (name, f"__{name}__"):
        setattr(sys, attribute, stream)


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
    atexit.register(_keep_imported)  # the first one is called last
    match serve(socket.socket(fileno=int(sys.argv[1]))):
        case ["-m", module, *arguments]:
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *arguments]:
            sys.argv = ["-c", *arguments]
            exec(code, {"__name__": "__main__"})
        case [script, *arguments]:
            sys.argv = [script, *arguments]
            sys.path[0] = os.path.dirname(script)
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
