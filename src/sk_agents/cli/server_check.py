"""Is a running server well, and do its events arrive one by one?

A proxy that collects a stream before it passes it on makes a live answer appear all at once, at
its end. That shows in when events arrive: an agent that plays a script speaks at a known pace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from uuid import uuid4

from sk_agents import __version__
from sk_agents.cli.findings import Finding
from sk_agents.cli.options import Target
from sk_agents.cli.reaching import SHORT_PATIENCE, client_of, link_of
from sk_agents.client import AgentInfo, Chat, ClientError, TealClient, TealServerError
from sk_agents.client.link import Request

PATIENCE = 10.0
SCRIPTED = "scripted/"
QUESTION = "What time is it?"
# A stream that is over sooner says nothing about its pace.
TELLING_SECONDS = 0.3
# Of a live stream the first event comes early: long before half of its time is over.
LATE = 0.5


async def check_server(target: Target) -> AsyncIterator[Finding]:
    health = await _check_health(target)
    yield health
    if health.state == "fail":
        return
    async with client_of(target, give_up_after=SHORT_PATIENCE) as client:
        try:
            agents = await client.agents()
        except ClientError as error:
            yield Finding("server's agents", "fail", str(error), "is --token (TA_TOKEN) right?")
            return
        names = ", ".join(agent.name for agent in agents)
        yield Finding("server's agents", "ok" if agents else "warn", names or "none")
        yield await _check_stream(client, agents)


async def _check_health(target: Target) -> Finding:
    try:
        async with asyncio.timeout(PATIENCE), link_of(target, give_up_after=0) as link:
            health = await link.call(Request("GET", "/health/ready"))
    except TealServerError as error:
        detail = f"{target.server} answers {error.status}"
        return Finding("server", "fail", detail, "GET /health/ready names what is down")
    except TimeoutError:
        detail = f"{target.server} says nothing for {PATIENCE:g} s"
        return Finding("server", "fail", detail, "is this the address of a Teal server?")
    except (ClientError, ValueError) as error:
        return Finding("server", "fail", f"{target.server}: {error}", "is it running, and there?")
    version = health.get("version") if isinstance(health, dict) else None
    if version is None:
        hint = "is this the address of a Teal server?"
        return Finding("server", "fail", f"{target.server} does not speak of its health", hint)
    if version != __version__:
        detail = f"{target.server} runs version {version}, this is {__version__}"
        return Finding("server", "warn", detail, "install the same version on both sides")
    return Finding("server", "ok", f"{target.server} is healthy, version {version}")


async def _check_stream(client: TealClient, agents: tuple[AgentInfo, ...]) -> Finding:
    check = "server's streams"
    scripted = [agent for agent in agents if (agent.model or "").startswith(SCRIPTED)]
    if not scripted:
        detail = "not measured: no agent here plays a script, and others cost money"
        return Finding(check, "warn", detail, "serve the tour beside the others to have it checked")
    chat = client.chat(f"doctor-{uuid4().hex}")
    try:
        times = await _arrivals(chat, scripted[0].name)
    except ClientError as error:
        return Finding(check, "fail", str(error))
    finally:
        with suppress(ClientError):
            await chat.delete()
    whole = times[-1] if times else 0.0
    if len(times) < 2 or whole < TELLING_SECONDS:
        detail = f"not measured: {len(times)} events in {whole:.2f} s are too quick to tell"
        return Finding(check, "warn", detail)
    if times[0] > whole * LATE:
        detail = f"all {len(times)} events came after {times[0]:.1f} of {whole:.1f} s"
        hint = "something in between buffers: switch off buffering and compression of event streams"
        return Finding(check, "fail", detail, hint)
    return Finding(check, "ok", f"{len(times)} events arrived one by one in {whole:.1f} s")


async def _arrivals(chat: Chat, agent: str) -> list[float]:
    """When each event came, in seconds after it was asked for."""
    began = time.monotonic()
    async with aclosing(chat.say(QUESTION, agent=agent)) as events:
        return [time.monotonic() - began async for _ in events]
