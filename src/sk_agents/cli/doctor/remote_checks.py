"""The doctor's checks over the network: how is each address reached, does each MCP server and each
model answer, and is a running server healthy?

To call a model, the doctor serves the configuration on loopback and sends one message. So the
question passes the provider's client, the agent's prompt and its tools like every other. Nothing is
kept, and the answer is cancelled at its first event.

A proxy that collects a stream before it passes it on makes an answer appear all at once, at its
end. `/health/stream` says when it sent its events, so the times of their arrival show such a proxy.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import uvicorn
from fastapi import FastAPI

from sk_agents import __version__
from sk_agents.app import create_app
from sk_agents.cli.doctor.findings import Finding
from sk_agents.cli.options import ServerAccess
from sk_agents.cli.serve import SignalFreeServer
from sk_agents.cli.server_connection import SHORT_RETRY_SECONDS, open_link, unopened_client
from sk_agents.client import (
    Answer,
    AnswerDelta,
    ApprovalRequired,
    Chat,
    ClientError,
    Failed,
    TealClient,
    TealServerError,
    Thinking,
    ThinkingDelta,
    ToolCall,
)
from sk_agents.client.connection import ServerRequest
from sk_agents.client.event_stream import payload_of
from sk_agents.client.sse_parser import Frame, SseParser
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.outbound.network import Network
from sk_agents.outbound.reach import origin_of, reach
from sk_agents.wiring import OutboundAddress, ServerParts

QUESTION = "Answer with the single word: ready."
MODEL_EVENTS = Answer | AnswerDelta | Thinking | ThinkingDelta | ToolCall | ApprovalRequired
# The doctor's own server is on loopback, for a moment and for the doctor alone.
OWN_SERVER = {
    "store": "memory:",
    "authorizer": "dummy",
    "authorizer_module": None,
    "authorizer_class": None,
    "persistence_module": None,
    "persistence_class": None,
    "allowed_hosts": None,
    "telemetry_enabled": False,
}
PORT_TIMEOUT = 2.0
SERVER_TIMEOUT = 10.0
STREAMS = "server's streams"
FOREIGN_PAGE = 403
# A stream that was sent in less time says nothing about its pace.
SHORTEST_STREAM = 0.2
# What was sent over some time must arrive over at least this share of it.
LIVE_SHARE = 0.5


async def check_addresses(
    addresses: Sequence[OutboundAddress], network: Network, *, is_tried: bool
) -> AsyncIterator[Finding]:
    """Which proxy and which authorities each address of the configuration would use."""
    for address in addresses:
        check = f"way to {address.purpose}"
        try:
            proxy = network.proxy_for(address.url)
        except ConfigurationError as error:
            yield Finding(check, "fail", str(error))
            continue
        way = f"through {proxy.url} ({proxy.variable})" if proxy else "without a proxy"
        is_secure = address.url.startswith("https:")
        trust = f", trusting {network.authorities}" if is_secure else ""
        detail = f"{origin_of(address.url)} {way}{trust}"
        if not is_tried:
            yield Finding(check, "ok", f"{detail}; not tried, because of --offline")
            continue
        problem = await reach(network, address.url, address.certificate)
        if problem is None:
            yield Finding(check, "ok", f"{detail}: reached")
        else:
            yield Finding(check, "fail", f"{detail}: {problem}", "docs/networks.md")


async def check_services(
    settings: Settings, files: Sequence[AgentFile], parts: ServerParts, *, seconds: float
) -> AsyncIterator[Finding]:
    """MCP servers, then models."""
    agents: dict[str, str] = {}
    for name, served in parts.agents.items():
        agents.setdefault(served.model, name)
    own = create_app(settings.model_copy(update=OWN_SERVER), files)
    async with _own_server(own) as address, TealClient(address) as client:
        if parts.clients.mcp.is_used:
            for finding in await _check_mcp(address):
                yield finding
        for model, agent in agents.items():
            yield await _check_model(client, model, agent, seconds)


async def _check_model(client: TealClient, model: str, agent: str, seconds: float) -> Finding:
    check = f"model {model}"
    chat = client.chat(f"doctor-{time.monotonic_ns()}")
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            failure = await _first_event(chat, agent)
    except TimeoutError:
        hint = "can this machine reach it? --model-timeout gives it more time"
        return Finding(check, "fail", f"no answer in {seconds:g} s", hint)
    except ClientError as error:
        return Finding(check, "fail", str(error), None)
    if failure is not None:
        hint = "check its name, key and address; teal serve --log-level debug logs more"
        return Finding(check, "fail", f"{failure.code}: {failure.message}", hint)
    return Finding(check, "ok", f"answers after {time.monotonic() - began:.1f} s")


async def _first_event(chat: Chat, agent: str) -> Failed | None:
    """The failure, or `None` once the model has answered anything at all."""
    async with aclosing(chat.say(QUESTION, agent=agent)) as events:
        async for event in events:
            if isinstance(event, Failed):
                return event
            if isinstance(event, MODEL_EVENTS):
                with suppress(ClientError):
                    await chat.cancel(event.interaction_id)
                return None
    return None


async def _check_mcp(address: str) -> list[Finding]:
    async with open_link(ServerAccess(address)) as link:
        health = await link.call(ServerRequest("GET", "/health/ready"))
    servers = health.get("mcp", []) if isinstance(health, dict) else []
    return [_mcp_finding(server) for server in servers]


def _mcp_finding(server: Mapping[str, Any]) -> Finding:
    check = f"mcp server {server['server']}"
    match server["status"]:
        case "up":
            return Finding(check, "ok", f"answers, {server['tools']} tools")
        case "connecting":
            hint = "programs that are downloaded first need more time; it is tried on and on"
            return Finding(check, "warn", "has not answered yet", hint)
        case status:
            hint = "check its command or address; teal serve --log-level debug logs what it writes"
            return Finding(check, "fail", f"{status}: {server['reason']}", hint)


@asynccontextmanager
async def _own_server(app: FastAPI) -> AsyncGenerator[str, None]:
    """Its address, while it runs."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, loop="none")
    config.timeout_graceful_shutdown = 1
    server = SignalFreeServer(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with app.router.lifespan_context(app):
            serving = asyncio.ensure_future(server.serve(sockets=[listener]))
            try:
                yield address
            finally:
                server.should_exit = True
                await serving


async def is_teal_server(access: ServerAccess) -> bool:
    try:
        async with asyncio.timeout(PORT_TIMEOUT), open_link(access) as link:
            answer = await link.call(ServerRequest("GET", "/health/live"))
    except (ClientError, TimeoutError, ValueError):
        return False
    return isinstance(answer, dict) and answer.get("alive") is True


async def check_server(access: ServerAccess) -> AsyncIterator[Finding]:
    health = await _check_health(access)
    yield health
    if health.state == "fail":
        return
    yield await _check_page(access)
    yield await _check_agents(access)
    yield await _check_stream(access)


async def _check_health(access: ServerAccess) -> Finding:
    is_it_teal = "is this the address of a Teal server?"
    try:
        async with asyncio.timeout(SERVER_TIMEOUT), open_link(access) as link:
            health = await link.call(ServerRequest("GET", "/health/ready"))
    except TealServerError as error:
        detail = f"{access.server} answers {error.status}"
        return Finding("server", "fail", detail, "the server's log names what is down")
    except TimeoutError:
        detail = f"{access.server} does not answer in {SERVER_TIMEOUT:g} s"
        return Finding("server", "fail", detail, is_it_teal)
    except (ClientError, ValueError) as error:
        hint = "is it running, and is the address right?"
        return Finding("server", "fail", f"{access.server}: {error}", hint)
    version = health.get("version") if isinstance(health, dict) else None
    if version is None:
        return Finding("server", "fail", f"{access.server} does not report its health", is_it_teal)
    if version != __version__:
        detail = f"{access.server} has version {version}, this command has {__version__}"
        return Finding("server", "warn", detail, "install the same version on both sides")
    workers = health.get("workers") or []
    away = [str(worker["number"]) for worker in workers if worker["state"] != "ready"]
    if away:
        detail = (
            f"{access.server}: of {len(workers)} workers these are not ready: {', '.join(away)}"
        )
        return Finding("server", "warn", detail, "the server's log says why they ended")
    count = f", {len(workers)} workers" if workers else ""
    return Finding("server", "ok", f"{access.server} is healthy, version {version}{count}")


async def _check_page(access: ServerAccess) -> Finding:
    """Asks as the page does that a browser has loaded from this address.

    A proxy that changes `Host`, if only by its port, makes the page look like one of another site.
    """
    origin = origin_of(access.server)
    request = ServerRequest("GET", "/health/live", headers={"Origin": origin})
    try:
        async with asyncio.timeout(SERVER_TIMEOUT), open_link(access) as link:
            await link.call(request)
    except TealServerError as error:
        if error.status != FOREIGN_PAGE:
            detail = f"not checked: GET /health/live is answered with {error.status}"
            return Finding("server's page", "warn", detail)
        detail = f"the page at {origin} stays blank: its requests are answered {error.status}"
        hint = "let the proxy pass Host on with its port; nginx: proxy_set_header Host $http_host;"
        return Finding("server's page", "fail", detail, hint)
    except (ClientError, TimeoutError) as error:
        return Finding("server's page", "fail", str(error) or "no answer")
    return Finding("server's page", "ok", f"a page from {origin} may talk to it")


async def _check_agents(access: ServerAccess) -> Finding:
    check = "server's agents"
    async with unopened_client(access, give_up_after=SHORT_RETRY_SECONDS) as client:
        try:
            agents = await client.agents()
        except ClientError as error:
            return Finding(
                check, "fail", str(error), "sign in with teal login, or is --token right?"
            )
    names = ", ".join(agent.name for agent in agents)
    return Finding(check, "ok" if agents else "warn", names or "none")


async def _check_stream(access: ServerAccess) -> Finding:
    try:
        async with asyncio.timeout(SERVER_TIMEOUT):
            times = await _event_times(access)
    except TealServerError as error:
        detail = f"not measured: GET /health/stream is answered with {error.status}"
        return Finding(STREAMS, "warn", detail)
    except TimeoutError:
        return Finding(STREAMS, "fail", f"a short stream did not end in {SERVER_TIMEOUT:g} s")
    except ClientError as error:
        return Finding(STREAMS, "fail", str(error))
    if not times:
        return Finding(STREAMS, "fail", "a stream had no events")
    sent, arrived = ((last - first) for first, last in zip(times[0], times[-1], strict=True))
    if sent < SHORTEST_STREAM:
        detail = f"not measured: {len(times)} events in {sent:.2f} s are too few to say"
        return Finding(STREAMS, "warn", detail)
    if arrived < sent * LIVE_SHARE:
        detail = f"{len(times)} events sent over {sent:.1f} s arrived within {arrived:.2f} s"
        hint = "a proxy buffers: switch off its buffering and compression of event streams"
        return Finding(STREAMS, "fail", detail, hint)
    return Finding(STREAMS, "ok", f"{len(times)} events arrived one by one in {arrived:.1f} s")


async def _event_times(access: ServerAccess) -> list[tuple[float, float]]:
    """When each event was sent, by the server's clock, and when it came, by ours."""
    parser = SseParser()
    times: list[tuple[float, float]] = []
    request = ServerRequest("GET", "/health/stream")
    async with open_link(access) as link, link.stream(request) as stream:
        while stream is not None and (read := await stream.read()):
            now = time.monotonic()
            times += [(_sent(frame), now) for frame in parser.feed(read)]
    return times


def _sent(event: Frame) -> float:
    after_ms = payload_of(event).get("after_ms")
    return after_ms / 1000 if isinstance(after_ms, int | float) else 0.0
