"""The todo agent as its demo configures it, with a scripted model and a database of its own."""

from __future__ import annotations

import asyncio
import os
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx
import yaml

from sk_agents.app import create_app
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.engine.events import Event
from sk_agents.interactions import chat_thread_id
from sk_agents.persistence.sqlite.store import SqliteStore
from sk_agents.testing import HeaderAuthorizer, ScriptedModelServer
from sk_agents.testing.scripted_model import Turn
from tests.forked_python import PYTHON
from tests.patience import seconds
from todo_server.task_stores import task_store
from todo_server.tasks import Task

DEMO = Path(__file__).parent.parent.parent / "demos" / "todo" / "config.yaml"
BOUND = seconds(60)
Json = dict[str, Any]


class StrictAuthorizer(HeaderAuthorizer):
    """Believed by the server: whoever it names is that user and nobody else."""

    insecure: ClassVar[bool] = False


@dataclass(slots=True)
class House:
    """A place on disk; every server at it goes on with what the others did."""

    folder: Path
    model: ScriptedModelServer

    @property
    def store(self) -> Path:
        return self.folder / "teal.sqlite"

    def agent_file(self, document: Json | None = None) -> Path:
        path = self.folder / "config.yaml"
        if document is not None:
            path.write_text(yaml.safe_dump(document))
            return path
        document = yaml.safe_load(DEMO.read_text())
        agent = document["spec"]["agent"]
        agent |= {"model": "scripted-test", "base_url": self.model.base_url}
        server = agent["mcp_servers"][0]
        server["command"] = PYTHON
        server["args"] += ["--store", f"sqlite://{self.folder}/todo.sqlite"]
        server["env"] = {"PYTHONPATH": str(DEMO.parent)}
        path.write_text(yaml.safe_dump(document))
        return path

    async def events(self, user: str, session: str) -> list[Event]:
        """The log as a second connection to the file finds it."""
        async with SqliteStore(self.store) as store:
            return list(await store.events_after(chat_thread_id(user, session), 0))

    async def tasks(self, user: str) -> list[Task]:
        """What the todo server keeps, read past everything else."""
        async with task_store(f"sqlite://{self.folder}/todo.sqlite") as store:
            return await store.list(user, "all", 100)

    @property
    def prompts(self) -> list[list[Json]]:
        return [request["messages"] for request in self.model.requests]


@dataclass(frozen=True, slots=True)
class Client:
    http: httpx.AsyncClient
    house: House

    async def post(
        self, text: str, session: str | None = "s", user: str = "ada", **fields: Any
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {user}", **fields.pop("headers", {})}
        body = {"user_message": text, **fields}
        if session is not None:
            body["session_id"] = session
        async with asyncio.timeout(BOUND):
            return await self.http.post("/chat", json=body, headers=headers)

    async def say(self, text: str, *args: Any, **fields: Any) -> Json:
        answer = await self.post(text, *args, **fields)
        assert answer.status_code == 200, answer.text
        reply: Json = answer.json()
        return reply

    async def get(self, path: str, user: str = "ada") -> Any:
        answer = await self.http.get(path, headers={"Authorization": f"Bearer {user}"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def decide(self, approval: Json, user: str = "ada", **body: Any) -> httpx.Response:
        return await self.http.post(
            f"/approvals/{approval['approval_id']}",
            json={"approved": True, **body},
            headers={"Authorization": f"Bearer {user}"},
        )


@asynccontextmanager
async def house(folder: Path, script: Sequence[Turn | Exception]) -> AsyncIterator[House]:
    async with ScriptedModelServer(script) as model:
        yield House(folder, model)


@asynccontextmanager
async def served(
    at: House,
    authorizer: RequestAuthorizer | None = None,
    document: Json | None = None,
    **settings: Any,
) -> AsyncIterator[Client]:
    """A server in this process, for the demo's agent unless `document` describes another."""
    configured = Settings(
        store=f"sqlite://{at.store}", service_config=None, open_monitoring=True, **settings
    )
    files = load_agent_files([at.agent_file(document)])
    app = create_app(configured, files, authorizer=authorizer or HeaderAuthorizer())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        transport = httpx.ASGITransport(app)
        http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=BOUND)
        client = Client(await stack.enter_async_context(http), at)
        if document is None:
            await _has_tools(http)
        yield client


@asynccontextmanager
async def chatting(
    folder: Path, script: Sequence[Turn | Exception], **settings: Any
) -> AsyncIterator[Client]:
    async with house(folder, script) as at, served(at, **settings) as client:
        yield client


@dataclass(slots=True)
class Instance:
    """A server in a process of its own."""

    process: Process
    url: str
    http: httpx.AsyncClient

    async def post(self, text: str, session: str = "s", user: str = "ada") -> Json:
        body = {"user_message": text, "session_id": session, "user_id": user}
        answer = await self.http.post(f"{self.url}/chat", json=body)
        assert answer.status_code == 200, answer.text
        reply: Json = answer.json()
        return reply


@asynccontextmanager
async def instance(agent: Path, folder: Path, store: Path) -> AsyncIterator[Instance]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TA_", "TEAL_"))}
    process = await asyncio.create_subprocess_exec(
        PYTHON, "-m", "sk_agents", "serve", str(agent), "--port", "0",
        "--store", f"sqlite://{store}", cwd=folder, env={**inherited, "HOME": str(folder)},
        stdin=DEVNULL, stdout=PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(BOUND):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found is not None, line
        async with httpx.AsyncClient(timeout=BOUND) as http:
            await _has_tools(http, found[0])
            yield Instance(process, found[0], http)
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(BOUND):
            await process.wait()


async def _has_tools(http: httpx.AsyncClient, url: str = "") -> None:
    """On a busy machine a server may be ready before those it talks to are."""
    async with asyncio.timeout(BOUND):
        while True:
            report = (await http.get(f"{url}/health/ready")).json()
            if all(one["status"] == "up" for one in report["mcp"]):
                return
            await asyncio.sleep(0.05)
