"""The stateless API in-process or on a port: agent files as people write them, a scripted model."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from sk_agents.app import create_app
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.agent_file import load_agent_files
from sk_agents.config.settings import Settings
from sk_agents.engine.engine import Engine
from sk_agents.engine.ports import ThreadQuery
from sk_agents.testing import ScriptedModelServer
from sk_agents.testing.scripted_model import Turn
from tests.patience import seconds
from tests.protocol import server_protocol

P = "/Helper/0.1"
USER = "dummyuser"
HELLO = {"chat_history": [{"role": "user", "content": "Hello?"}]}
MODEL_URL = "MODEL_URL"

CHAT = """
# A helper, as its author wrote it.
apiVersion: skagents/v1
kind: Chat
description: >
  Helps with mail.
service_name: Helper
version: 0.1
owner: the support team
input_type: BaseInput
spec:
  agent:
    name: default
    role: A friendly clerk  # read by people
    model: x
    base_url: MODEL_URL
    system_prompt: You help.
    temperature: 0.0
    tone: warm
"""
AGENT = """
apiVersion: skagents/v2alpha1
kind: Agent
name: Helper
version: 0.1
metadata:
  description: Looks at pictures.
  skills:
    - id: look
      name: Look
      description: Looks.
      tags: [pictures]
spec:
  agent:
    name: default
    role: A friendly clerk
    model: x
    base_url: MODEL_URL
    system_prompt: You look.
"""
SEQUENTIAL = """
apiVersion: skagents/v1
kind: Sequential
description: Writes about places.
service_name: Helper
version: 0.1
input_type: Place
spec:
  agents:
    - name: writer
      role: Writer
      model: x
      base_url: MODEL_URL
      system_prompt: You write.
    - name: editor
      role: Editor
      model: y
      base_url: MODEL_URL
      system_prompt: You edit.
  tasks:
    # Written last, done last.
    - name: shorten
      task_no: 2
      description: Make it short
      instructions: "Shorten: {{ _draft }}"
      agent: editor
    - name: draft
      task_no: 1
      description: Write it
      instructions: |
        Write about {{ place.name }} for {{ reader }}.
      agent: writer
"""
TYPES = """
from semantic_kernel.kernel_pydantic import KernelBaseModel

from sk_agents.ska_types import BaseEmbeddedImage, BaseInput, EmbeddedImage


class Name(KernelBaseModel):
    name: str


class Place(BaseInput):
    place: Name
    reader: str = "children"


class Picture(BaseEmbeddedImage):
    reader: str = "children"


class Summary(KernelBaseModel):
    title: str
    stars: int
"""
PLUGINS = """
import time
from pathlib import Path
from typing import Annotated

from semantic_kernel.functions.kernel_function_decorator import kernel_function

from sk_agents.ska_types import BasePlugin
from sk_agents.tools import tool

SENT = Path(__file__).with_name("sent.txt")


class Mail(BasePlugin):
    @kernel_function(description="Send a mail.")
    def send(self, to: Annotated[str, "whom"]) -> str:
        with SENT.open("a") as sent:
            sent.write(f"{to} {self.authorization}\\n")
        self.extra_data_collector.add_extra_data("sent_to", to)
        return f"sent to {to}"

    @kernel_function(description="Send a letter.")
    @tool(timeout=0.05)
    async def post(self) -> str:
        import asyncio
        await asyncio.Event().wait()
        return "never"
"""


@dataclass(frozen=True, slots=True)
class Server:
    app: FastAPI
    client: httpx.AsyncClient
    model: ScriptedModelServer

    @property
    def engine(self) -> Engine:
        engine: Engine = self.app.state.engines.unattended
        return engine

    async def threads(self) -> int:
        """How many stateless runs have left something behind."""
        return len((await self.engine.catalog.threads(ThreadQuery(USER))).threads)

    async def is_empty(self) -> bool:
        return not await self.threads()

    async def is_asked(self) -> bool:
        """Whether a run waits for the model."""
        return bool(self.model.requests) and not await self.is_empty()

    def prompt(self, number: int = -1) -> list[tuple[str, Any]]:
        """What the model was sent: the role and the content of each message."""
        messages = self.model.requests[number]["messages"]
        return [(message["role"], message["content"]) for message in messages]


def write_agent(folder: Path, config: str, **files: str) -> Path:
    """A folder as people have it: a config, and Python files beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"custom_types": TYPES, "custom_plugins": PLUGINS, **files}.items():
        path = folder / f"{name}.py"
        path.write_text(text)
        path.chmod(0o600)
    path = folder / "config.yaml"
    path.write_text(config)
    return path


def build_app(
    *paths: Path, authorizer: RequestAuthorizer | None = None, **settings: Any
) -> FastAPI:
    known = Settings(store="memory:", **settings)
    return create_app(known, load_agent_files(paths), authorizer=authorizer)


@asynccontextmanager
async def serving(
    folder: Path,
    config: str,
    script: Sequence[Turn | Exception],
    *,
    env: str = "",
    files: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Server]:
    """In-process. `MODEL_URL` in the config, and in the `.env` beside it, plays the script."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModelServer(script))
        path = write_agent(folder, config.replace(MODEL_URL, model.base_url), **(files or {}))
        (folder / ".env").write_text(env.replace(MODEL_URL, model.base_url))
        app = build_app(path, **settings)
        await stack.enter_async_context(app.router.lifespan_context(app))
        transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(transport=transport, base_url="http://test")
        await stack.enter_async_context(client)
        yield Server(app, client, model)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(seconds(20)):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0)


async def _started(process: uvicorn.Server) -> bool:
    return process.started


class _Uvicorn(uvicorn.Server):
    """Leaves signals to pytest."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[str]:
    """The same application on a free port of the loopback address; gives host and port."""
    config = uvicorn.Config(
        server.app,
        http=server_protocol(),
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=5,
    )
    process = _Uvicorn(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(process.serve(sockets=[listener]))
        await until(lambda: _started(process))
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.should_exit = True
            await task
