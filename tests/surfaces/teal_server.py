"""Teal's stateful API in-process: agent files as people write them, a scripted model, one store."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from sk_agents.agent_assembly import agent_address
from sk_agents.app import create_app
from sk_agents.config.agent_file import AgentFile, load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.http.front import TealApp
from sk_agents.http.health import Health
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.persistence.tasks.view import StoreTasks
from sk_agents.ska_types import AgentTask
from sk_agents.tealagents.routes import teal_operations
from sk_agents.tealagents.v1alpha1.config import ServedTealAgent, read_config
from sk_agents.testing import HeaderAuthorizer, ScriptedModelServer
from sk_agents.testing.scripted_model import Turn
from tests.patience import seconds
from tests.protocol import server_protocol

# As long as a busy machine may take for fifty requests at once.
BOUND = seconds(60)
P = "/Helper/0.1"
AGENT = """
# A helper, as its author wrote it.
apiVersion: tealagents/v1alpha1
kind: Agent
name: {name}
version: 0.1
owner: the support team
metadata:
  description: Helps with mail.
  skills:
    - id: mail
      name: Mail
      description: Sends mail.
      tags: [mail]
      examples: ["Write to Bob."]
spec:
  agent:
    name: default
    role: A friendly clerk  # read by people
    model: x
    base_url: {base_url}
    system_prompt: You help.
    temperature: 0.0
    tone: warm
    plugins: [Mail, Clock]
    {more}
"""
PLUGINS = """
from pathlib import Path
from typing import Annotated

from semantic_kernel.functions.kernel_function_decorator import kernel_function

from sk_agents.ska_types import BasePlugin

SENT = Path(__file__).with_name("sent.txt")


class Mail(BasePlugin):
    @kernel_function(description="Send a mail.")
    async def send(self, to: Annotated[str, "whom"], text: str = "hi") -> str:
        with SENT.open("a") as sent:
            sent.write(f"{to} {text} {self.authorization}\\n")
        self.extra_data_collector.add_extra_data("sent_to", to)
        return f"sent to {to}"


class Clock(BasePlugin):
    @kernel_function(description="What time is it?")
    def now(self) -> str:
        self.extra_data_collector.add_extra_data("zone", "UTC")
        return "noon"
"""
FREE_CLOCK = "approvals: {rules: [{tool: Clock-now, then: allow}]}"
Script = Sequence[Turn | Exception]
Json = dict[str, Any]


@dataclass(slots=True)
class Place:
    """Where a server keeps things; another server at the same place goes on with them."""

    folder: Path
    model: ScriptedModelServer
    names: tuple[str, ...] = ("Helper",)
    more: str = FREE_CLOCK
    settings: Json = field(default_factory=dict)
    served: Json = field(default_factory=dict)

    @property
    def database(self) -> Path:
        return self.folder / "teal.sqlite"

    @property
    def sent(self) -> list[str]:
        """What the mail plugin has done, one line a mail."""
        path = self.folder / "Helper" / "sent.txt"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def kept(self) -> bytes:
        """Everything in the store's files."""
        files = filter(Path.is_file, self.folder.glob("teal.sqlite*"))
        return b"".join(path.read_bytes() for path in files)

    def app(self) -> TealApp:
        for name in self.names:
            folder = self.folder / name
            folder.mkdir(exist_ok=True)
            (folder / "custom_plugins.py").write_text(PLUGINS)
            (folder / "custom_plugins.py").chmod(0o600)
            text = AGENT.format(name=name, base_url=self.model.base_url, more=self.more)
            (folder / "config.yaml").write_text(text)
        given = {"store": f"sqlite://{self.database}", "service_config": None, **self.settings}
        settings = Settings(**given)
        files = load_agent_files([self.folder / name / "config.yaml" for name in self.names])
        app = create_app(settings, files, authorizer=HeaderAuthorizer())
        for file in files:
            path = f"/{file.name}/{file.version}"
            if self.served:
                self._serve_otherwise(app, file, path)
        return app

    def _serve_otherwise(self, app: TealApp, file: AgentFile, path: str) -> None:
        """The routes with other bounds than a server has."""
        routes = app.router.routes
        routes[:] = [one for one in routes if not getattr(one, "path", "").startswith(path)]
        served = ServedTealAgent(agent_address(file), read_config(file), **self.served)
        app.add_operations(teal_operations(served, Health()))

    async def stored(self, task_id: str) -> AgentTask | None:
        """The task as a second connection to the file finds it."""
        async with SqliteStore(self.database) as store:
            return await StoreTasks(store).load(task_id)


@dataclass(frozen=True, slots=True)
class Server:
    """A running one, and a user's way to talk to it."""

    app: FastAPI
    http: httpx.AsyncClient
    place: Place

    @property
    def prompts(self) -> list[list[Json]]:
        return [request["messages"] for request in self.place.model.requests]

    async def post(
        self, path: str, body: Any = None, user: str | None = "alice", **headers: str
    ) -> httpx.Response:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with asyncio.timeout(BOUND):
            return await self.http.post(path, json=body, headers={**_authorization(user), **given})

    async def get(self, path: str, user: str | None = "alice") -> httpx.Response:
        async with asyncio.timeout(BOUND):
            return await self.http.get(path, headers=_authorization(user))

    async def delete(self, path: str, user: str | None = "alice") -> httpx.Response:
        async with asyncio.timeout(BOUND):
            return await self.http.delete(path, headers=_authorization(user))

    async def ask(self, text: str = "hello", user: str = "alice", **fields: Any) -> Json:
        """A message that is answered 200."""
        response = await self.post(P, message(text, **fields), user)
        assert response.status_code == 200, response.text
        reply: Json = response.json()
        return reply

    async def events(
        self, path: str = f"{P}/sse", body: Any = None, user: str = "alice", **headers: str
    ) -> list[tuple[str, Json]]:
        """The whole stream, as names and data."""
        response = await self.post(path, body, user, **headers)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return frames(response.text)


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    """The address of a real server for it, with the connections that `teal serve` has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, http=server_protocol(), lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]))
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True


def message(text: str = "hello", **fields: Any) -> Json:
    return {"items": [{"content_type": "text", "content": text}], **fields}


def frames(text: str) -> list[tuple[str, Json]]:
    found: list[tuple[str, Json]] = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


class Live:
    """A stream while it runs: `arrived` are its bytes so far."""

    def __init__(self) -> None:
        self.arrived = b""
        self.status = 0
        self._more = asyncio.Event()
        self._sent = False

    async def until(self, text: bytes) -> None:
        """Until this has arrived."""
        async with asyncio.timeout(BOUND):
            while text not in self.arrived:
                self._more.clear()
                await self._more.wait()

    async def receive(self) -> Json:
        if self._sent:
            await asyncio.Event().wait()
        self._sent = True
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.arrived += message.get("body", b"")
        self._more.set()

    body = b""


@asynccontextmanager
async def streaming(at: Server, path: str, body: Any, user: str = "alice") -> AsyncIterator[Live]:
    """A stream whose reader sees each frame as it is sent; left at the end."""
    live = Live()
    live.body = json.dumps(body).encode()
    headers = [
        (b"host", b"test"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(live.body)).encode()),
        (b"authorization", f"Bearer {user}".encode()),
    ]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "server": ("test", 80),
    }
    task = asyncio.ensure_future(at.app(scope, live.receive, live.send))
    try:
        yield live
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def eventually(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Until a look shows what is wanted."""
    async with asyncio.timeout(BOUND):
        while True:
            if await look() == wanted:
                return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def place(folder: Path, script: Script, **fields: Any) -> AsyncIterator[Place]:
    async with ScriptedModelServer(script) as model:
        yield Place(folder, model, **fields)


@asynccontextmanager
async def serving(at: Place) -> AsyncIterator[Server]:
    app = at.app()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(transport=transport, base_url="http://test", timeout=BOUND)
        yield Server(app, await stack.enter_async_context(client), at)


@asynccontextmanager
async def server(folder: Path, script: Script = (), **fields: Any) -> AsyncIterator[Server]:
    """A server of its own for one test."""
    async with place(folder, script, **fields) as at, serving(at) as running:
        yield running


def _authorization(user: str | None) -> dict[str, str]:
    return {} if user is None else {"Authorization": f"Bearer {user}"}
