"""A server over real HTTP in this process, its model a script behind a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import uvicorn
import yaml
from fastapi import FastAPI

from sk_agents.app import create_app
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.engine.defaults import RandomIds, SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.http.connections import ConnectionLimits
from sk_agents.persistence.liveness import new_owner
from sk_agents.signals.local import LocalSignals
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn
from tests.patience import seconds
from tests.protocol import server_protocol

TIMEOUT = seconds(20)
PLUGINS = """
import asyncio
from collections.abc import AsyncIterator

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import ToolError, ToolFile, kernel_function, tool

PNG = b"\\x89PNG\\r\\n\\x1a\\n" + b"\\0\\0\\0\\rIHDR" + b"\\0\\0\\0\\x01" * 2 + b"rest"
SENT: list[str] = []


class Mail(BasePlugin):
    @tool(effect="read_only")
    @kernel_function(description="Look something up.")
    def look(self, what: str) -> str:
        return f"about {what}"

    @kernel_function(description="Send a mail.")
    def send(self, to: str, text: str = "hello") -> str:
        SENT.append(to)
        return f"sent {text!r} to {to}"

    @tool(timeout=0.1)
    @kernel_function(description="Send a mail by a slow post.")
    async def post(self, to: str) -> str:
        SENT.append(to)
        if len(SENT) == 1:
            await asyncio.sleep(60)
        return f"posted to {to}"

    @tool(effect="read_only")
    @kernel_function(description="Draw a plot.")
    def draw(self, name: str) -> list[object]:
        return ["Here it is.", ToolFile(PNG, name=name), ToolFile(b"a,b", "text/csv", "t.csv")]

    @tool(effect="read_only")
    @kernel_function(description="Fail.")
    def fail(self) -> str:
        raise ToolError("it cannot be done")

    @tool(effect="read_only")
    @kernel_function(description="Count aloud.")
    async def count(self, to: int) -> AsyncIterator[str]:
        for number in range(1, to + 1):
            yield f"{number}\\n"

    @tool(effect="read_only")
    @kernel_function(description="Say two words, the second once somebody has opened the pipe.")
    async def drip(self, pipe: str) -> AsyncIterator[str]:
        yield "one "
        await asyncio.to_thread(lambda: open(pipe).close())
        yield "two"
"""
SKILL = {
    "id": "help",
    "name": "Help",
    "description": "Looks things up.",
    "tags": ["help"],
    "examples": ["Look up Oslo"],
}


def write_agent(folder: Path, base_url: str, name: str = "helper", **agent: Any) -> Path:
    """An agent file and its plugins; `agent` are further fields of the agent."""
    folder.mkdir(parents=True, exist_ok=True)
    plugins = folder / "custom_plugins.py"
    plugins.write_text(PLUGINS)
    plugins.chmod(0o600)
    document = {
        "apiVersion": "tealagents/v1alpha1",
        "kind": "Agent",
        "name": name,
        "version": 0.1,
        "metadata": {"description": "Helps.", "skills": [SKILL]},
        "spec": {
            "agent": {
                "name": "default",
                "model": "scripted-test",
                "base_url": base_url,
                "system_prompt": "You help.",
                "plugins": ["Mail"],
                **agent,
            }
        },
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@dataclass(slots=True)
class Served:
    """The server's address, a client for it, and the model's side of the story."""

    url: str
    client: httpx.AsyncClient
    app: FastAPI
    model: ScriptedModelServer

    async def say(self, text: str = "hello", *, chat: str = "c", **fields: Any) -> list[Frame]:
        """The whole stream of a new interaction."""
        body = {"user_message": text, **fields.pop("body", {})}
        return await self.read("POST", f"/chats/{chat}/interactions", json=body, **fields)

    async def read(self, method: str, path: str, **request: Any) -> list[Frame]:
        async with self.stream(method, path, **request) as frames:
            return [frame async for frame in frames]

    async def say_until(
        self, name: str, text: str = "hello", *, chat: str = "c", **fields: Any
    ) -> list[Frame]:
        """The stream of a new interaction up to its first frame of this name."""
        body = {"user_message": text, **fields.pop("body", {})}
        path = f"/chats/{chat}/interactions"
        return await self.read_until(name, "POST", path, json=body, **fields)

    async def read_until(self, name: str, method: str, path: str, **request: Any) -> list[Frame]:
        seen: list[Frame] = []
        async with self.stream(method, path, **request) as frames:
            async for frame in frames:
                seen.append(frame)
                if frame.name == name:
                    return seen
        raise AssertionError(f"no {name} in {[frame.name for frame in seen]}")

    async def follow(self, interaction: str, *, chat: str = "c", **request: Any) -> list[Frame]:
        """An interaction from its beginning to its end."""
        return await self.read("GET", f"/chats/{chat}/interactions/{interaction}/events", **request)

    async def decide(
        self, asked: dict[str, Any], *, chat: str = "c", headers: Any = None, **body: Any
    ) -> httpx.Response:
        """Answer an `approval_required`; yes, unless `body` says otherwise."""
        return await self.client.post(
            f"/chats/{chat}/interactions/{asked['interaction_id']}/approve",
            json={"approval_id": asked["approval_id"], "approved": True, **body},
            headers=headers,
        )

    async def get(self, path: str, **request: Any) -> Any:
        answer = await self.client.get(path, **request)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, **request: Any
    ) -> AsyncIterator[AsyncIterator[Frame]]:
        """The frames as they come."""
        async with asyncio.timeout(TIMEOUT):
            async with httpx_sse.aconnect_sse(self.client, method, path, **request) as source:
                if source.response.status_code != 200:
                    await source.response.aread()
                    raise AssertionError(f"{source.response.status_code}: {source.response.text}")
                yield _frames(source)


@dataclass(frozen=True, slots=True)
class Frame:
    """`id` is empty for what is not in the log."""

    name: str
    data: dict[str, Any]
    id: str = ""

    @property
    def is_durable(self) -> bool:
        return bool(self.id)

    @property
    def seq(self) -> int:
        """The place in the log that its id begins with."""
        return int(self.id.partition("-")[0])


async def _frames(source: httpx_sse.EventSource) -> AsyncIterator[Frame]:
    last = ""
    async for event in source.aiter_sse():
        if not event.data:
            # This parser takes a comment for an event once there was an id.
            continue
        # An event without an id repeats the last one by the rules; here it has none.
        has_own = bool(event.id) and event.id != last
        last = event.id or last
        yield Frame(event.event, event.json(), event.id if has_own else "")


def names(frames: Sequence[Frame]) -> list[str]:
    """Of the durable frames."""
    return [frame.name for frame in frames if frame.is_durable]


def first(frames: Sequence[Frame], name: str) -> dict[str, Any]:
    return next(frame.data for frame in frames if frame.name == name)


def id_of(frames: Sequence[Frame]) -> str:
    """Of the interaction that these frames are about."""
    interaction: str = frames[0].data["interaction_id"]
    return interaction


def durable(frames: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame.is_durable]


@asynccontextmanager
async def serving(
    folder: Path,
    script: Sequence[Turn | Exception] = (),
    *,
    agent: Mapping[str, Any] | None = None,
    authorizer: RequestAuthorizer | None = None,
    store: str | None = None,
    grace: float | None = None,
    limits: ConnectionLimits | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """One agent named `helper` on a SQLite file in `folder`, unless `store` says otherwise.

    With `grace` a run that has no reader is given that many seconds; `limits` are those of its
    connections.
    """
    async with ScriptedModelServer(script) as model:
        path = write_agent(folder / "helper", model.base_url, **(agent or {}))
        url = store or f"sqlite:///{folder}/chats.sqlite"
        configured = Settings(store=url, **settings)
        app = create_app(configured, load_agent_files([path]), authorizer=authorizer)
        async with AsyncExitStack() as stack:
            address = await stack.enter_async_context(listening(app, limits))
            if grace is not None:
                await stack.enter_async_context(_impatient(app, grace))
            client = httpx.AsyncClient(base_url=address, timeout=TIMEOUT)
            yield Served(address, await stack.enter_async_context(client), app, model)


@asynccontextmanager
async def _impatient(app: FastAPI, grace: float) -> AsyncIterator[None]:
    """Another engine on the application's store, in the place of its own."""
    house = app.state.parts
    engine = Engine(
        house.stores.main,
        {name: served.agent for name, served in house.agents.items()},
        signals=LocalSignals(),
        clock=SystemClock(),
        ids=RandomIds(),
        owner=new_owner(),
        disconnect_grace=grace,
    )
    async with engine:
        app.state.engines = replace(app.state.engines, main=engine)
        yield


@asynccontextmanager
async def listening(app: FastAPI, limits: ConnectionLimits | None = None) -> AsyncIterator[str]:
    """The application behind a real socket, as `teal serve` has it; its address."""
    # Only for a socket of this protocol does asyncio switch off the waiting for fuller packets.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(100)
    config = uvicorn.Config(
        app,
        http=server_protocol(limits),
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    async with app.router.lifespan_context(app):
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            with suppress(asyncio.CancelledError):
                await task


class _Server(uvicorn.Server):
    """Leaves signals to the test runner."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
