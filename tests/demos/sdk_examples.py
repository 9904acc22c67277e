"""The agents that the SDK's own examples make. It runs where the SDK is installed.

The examples come with the SDK's source archive. Each of them is imported and its `main` is called,
with a runner that runs nothing: the `Agent`s it makes until it ends or fails are kept. While that
goes on, nothing may connect to anything and no process may be started.

A server finds the agents here as `agent_0`, `agent_1` and so on, always in the same order.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import importlib
import inspect
import io
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

from sk_agents.agent_assembly import Clients, build_agents
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.llm.model_clients import ModelClients
from sk_agents.tools.mcp.servers import McpServers
from sk_agents.tools.openapi.clients import RemoteClients

# Not installed where the tests themselves run.
agents: Any = importlib.import_module("agents")
servers: Any = importlib.import_module("agents.mcp")

ROOT = Path(os.environ["SDK_EXAMPLES"])
# Voice and realtime agents are no `Agent`s, or need a microphone.
LEFT_OUT = ("realtime", "voice")
MOST_SECONDS = 20
FORBIDDEN = {
    *("socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen"),
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn"),
}
SAMPLES = {"str": "x", "int": 1, "bool": False, "float": 1.0}

made: list[tuple[str, Any]] = []
current = ""
is_collecting = False


class Anything:
    """What a run of an agent results in: nothing, whatever it is asked for."""

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *_given: object, **_named: object) -> Anything:
        return Anything()

    def __await__(self) -> Generator[Any, None, Anything]:
        yield from asyncio.sleep(0).__await__()
        return self

    def __iter__(self) -> Iterator[Anything]:
        return iter(())

    async def __aiter__(self) -> AsyncIterator[Anything]:
        none: tuple[Anything, ...] = ()
        for each in none:
            yield each

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __add__(self, other: Any) -> Any:
        return other

    def __getitem__(self, _key: object) -> Anything:
        return Anything()


def refuse(event: str, _arguments: object) -> None:
    if is_collecting and event in FORBIDDEN:
        raise PermissionError(f"{event} is not for examples")


async def no_run(*_given: object, **_named: object) -> Anything:
    await asyncio.sleep(0)
    return Anything()


async def nothing(*_given: object, **_named: object) -> None:
    await asyncio.sleep(0)


def no_input(*_given: object) -> str:
    raise EOFError


def stand_in() -> None:
    """Nothing is run, connected to or asked for."""
    original = agents.Agent.__post_init__

    def remember(agent: Any) -> None:
        original(agent)
        if is_collecting:
            made.append((current, agent))

    agents.Agent.__post_init__ = remember
    agents.Runner.run = no_run
    agents.Runner.run_sync = agents.Runner.run_streamed = lambda *given, **named: Anything()
    builtins.input = no_input
    for server in _below(servers.MCPServer):
        server.connect = server.cleanup = nothing


def _below(kind: Any) -> Iterator[Any]:
    for below in kind.__subclasses__():
        yield below
        yield from _below(below)


def collect() -> None:
    global current
    for path in sorted((ROOT / "examples").rglob("*.py")):
        current = str(path.relative_to(ROOT / "examples"))
        if current.split("/")[0] in LEFT_OUT or path.name == "run_examples.py":
            continue
        sys.argv = [str(path)]
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        # Examples need libraries, keys and servers that are not here: then that was all of them.
        with contextlib.suppress(BaseException), contextlib.redirect_stdout(io.StringIO()):
            run_main(importlib.import_module(module))


def run_main(module: Any) -> None:
    main = getattr(module, "main", None)
    if main is None:
        return
    needed = [
        each
        for each in inspect.signature(main).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    samples = {each.name: SAMPLES.get(str(each.annotation), Anything()) for each in needed}
    positional = [samples.pop(e.name) for e in needed if e.kind is not e.KEYWORD_ONLY]
    result = main(*positional, **samples)
    if inspect.isawaitable(result):
        asyncio.run(asyncio.wait_for(result, MOST_SECONDS))


def keep_apart(agent: Any) -> None:
    """Its MCP servers are described as they were, and lead nowhere."""
    for server in agent.mcp_servers:
        params = getattr(server, "params", None)
        if isinstance(params, dict):
            params["url"] = "http://127.0.0.1:9/mcp"
        elif params is not None:
            params.command, params.args = sys.executable, ["-c", "pass"]


def run() -> None:
    global is_collecting
    here, arguments = os.getcwd(), sys.argv
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    sys.addaudithook(refuse)
    stand_in()
    is_collecting = True
    # A thread of its own: the server may have an event loop already.
    worker = threading.Thread(target=collect)
    worker.start()
    worker.join()
    is_collecting = False
    os.chdir(here)
    sys.argv = arguments


agents.set_tracing_disabled(True)
agents.set_default_openai_api("chat_completions")
real_runner = dict(vars(agents.Runner))
run()
for name in ("run", "run_sync", "run_streamed"):
    setattr(agents.Runner, name, real_runner[name])
for number, (_, each_agent) in enumerate(made):
    keep_apart(each_agent)
    globals()[f"agent_{number}"] = each_agent


class ExampleContext:
    """Has what the examples' functions look for in their contexts."""

    def __init__(self, _context: object) -> None:
        self.style = "haiku"
        self.language_preference = "french_spanish"


def loaded(folder: Path) -> list[dict[str, Any]]:
    """Every agent, and why our server does not take it, if so."""
    rows = []
    for number, (example, agent) in enumerate(made):
        files = load_agent_files([folder / f"agent_{number}.yaml"])
        clients = Clients(ModelClients(), RemoteClients(), McpServers())
        problem = None
        try:
            build_agents(files, Settings(), clients)
        except ConfigurationError as error:
            problem = str(error)
        kind = type(agent).__name__
        rows.append({"example": example, "name": agent.name, "kind": kind, "problem": problem})
    return rows


CONFIG = """
apiVersion: tealagents/v1alpha1
kind: Agent
name: agent_{number}
version: 0.1
spec:
  agent:
    name: default
    openai_agent: {module}:agent_{number}
    model: openai/scripted
    base_url: {url}
    openai_context: {module}:ExampleContext
"""


def report(folder: Path, url: str) -> None:
    """Write a file for each agent, and print what becomes of them."""
    for number in range(len(made)):
        path = folder / f"agent_{number}.yaml"
        path.write_text(CONFIG.format(number=number, module=__name__, url=url))
    sys.stdout.write(json.dumps(loaded(folder)))
