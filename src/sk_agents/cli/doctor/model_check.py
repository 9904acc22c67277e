"""Does each model answer? The configuration is served to ourselves, and every model asked a word.

So the question takes the way of every other one: the provider's client, the agent's prompt and its
tools. Nothing of it is kept, and the answer is cut off at its first sign.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress

import uvicorn

from sk_agents.app import create_app
from sk_agents.cli.doctor.findings import Finding
from sk_agents.client import (
    Answer,
    AnswerDelta,
    ApprovalRequired,
    Chat,
    ClientError,
    Failed,
    TealClient,
    Thinking,
    ThinkingDelta,
    ToolCall,
)
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.settings import Settings
from sk_agents.wiring import House

QUESTION = "Answer with the single word: ready."
SIGNS = Answer | AnswerDelta | Thinking | ThinkingDelta | ToolCall | ApprovalRequired
# On loopback, for a moment, and for nobody else: nothing is kept and nobody needs a token.
OURSELVES = {
    "store": "memory:",
    "authorizer_module": None,
    "authorizer_class": None,
    "persistence_module": None,
    "persistence_class": None,
    "allowed_hosts": None,
    "telemetry_enabled": False,
}


async def check_models(
    settings: Settings, files: Sequence[AgentFile], house: House, *, patience: float
) -> AsyncIterator[Finding]:
    agents: dict[str, str] = {}
    for name, served in house.agents.items():
        agents.setdefault(served.model, name)
    async with _served(settings.model_copy(update=OURSELVES), files) as client:
        for model, agent in agents.items():
            yield await _check(client, model, agent, patience)


async def _check(client: TealClient, model: str, agent: str, patience: float) -> Finding:
    check = f"model {model}"
    chat = client.chat(f"doctor-{time.monotonic_ns()}")
    began = time.monotonic()
    try:
        async with asyncio.timeout(patience):
            failure = await _first_sign(chat, agent)
    except TimeoutError:
        hint = "is it reachable from here? --model-timeout gives it more time"
        return Finding(check, "fail", f"says nothing for {patience:g} s", hint)
    except ClientError as error:
        return Finding(check, "fail", str(error), None)
    if failure is not None:
        hint = "check its name, key and address: teal serve --log-level debug tells more"
        return Finding(check, "fail", f"{failure.code}: {failure.message}", hint)
    return Finding(check, "ok", f"answers after {time.monotonic() - began:.1f} s")


async def _first_sign(chat: Chat, agent: str) -> Failed | None:
    """The reason of the failure, or `None` once the model has said anything at all."""
    async with aclosing(chat.say(QUESTION, agent=agent)) as events:
        async for event in events:
            if isinstance(event, Failed):
                return event
            if isinstance(event, SIGNS):
                with suppress(ClientError):
                    await chat.cancel(event.interaction_id)
                return None
    return None


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def _served(
    settings: Settings, files: Sequence[AgentFile]
) -> AsyncGenerator[TealClient, None]:
    app = create_app(settings, files)
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, loop="none")
    config.timeout_graceful_shutdown = 1
    server = _Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with app.router.lifespan_context(app):
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            try:
                async with TealClient(address) as client:
                    yield client
            finally:
                server.should_exit = True
                await serving
