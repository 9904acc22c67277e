"""Is a running server well, and do its events arrive one by one?

A proxy that collects a stream before it passes it on makes a live answer appear all at once, at
its end. That shows in when events arrive: `/health/stream` says when it sent them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from sk_agents import __version__
from sk_agents.cli.doctor.findings import Finding
from sk_agents.cli.options import Target
from sk_agents.cli.reaching import SHORT_PATIENCE, client_of, link_of
from sk_agents.client import ClientError, TealServerError
from sk_agents.client.events import payload_of
from sk_agents.client.link import Request
from sk_agents.client.sse_parser import Frame, SseParser

PATIENCE = 10.0
STREAMS = "server's streams"
# A stream that was sent in less says nothing about its pace.
TELLING_SECONDS = 0.2
# What was sent over some time must arrive over at least so much of it.
LIVE_SHARE = 0.5


async def check_server(target: Target) -> AsyncIterator[Finding]:
    health = await _check_health(target)
    yield health
    if health.state == "fail":
        return
    yield await _check_agents(target)
    yield await _check_stream(target)


async def _check_agents(target: Target) -> Finding:
    check = "server's agents"
    async with client_of(target, give_up_after=SHORT_PATIENCE) as client:
        try:
            agents = await client.agents()
        except ClientError as error:
            return Finding(check, "fail", str(error), "is --token (TA_TOKEN) right?")
    names = ", ".join(agent.name for agent in agents)
    return Finding(check, "ok" if agents else "warn", names or "none")


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


async def _check_stream(target: Target) -> Finding:
    try:
        async with asyncio.timeout(PATIENCE):
            beats = await _beats(target)
    except TealServerError as error:
        detail = f"not measured: GET /health/stream is answered with {error.status}"
        return Finding(STREAMS, "warn", detail)
    except TimeoutError:
        return Finding(STREAMS, "fail", f"no end of a stream in {PATIENCE:g} s")
    except ClientError as error:
        return Finding(STREAMS, "fail", str(error))
    if not beats:
        return Finding(STREAMS, "fail", "a stream with nothing in it")
    sent, arrived = ((last - first) for first, last in zip(beats[0], beats[-1], strict=True))
    if sent < TELLING_SECONDS:
        detail = f"not measured: {len(beats)} events in {sent:.2f} s are too quick to tell"
        return Finding(STREAMS, "warn", detail)
    if arrived < sent * LIVE_SHARE:
        detail = f"{len(beats)} events sent over {sent:.1f} s arrived within {arrived:.2f} s"
        hint = "something in between buffers: switch off buffering and compression of event streams"
        return Finding(STREAMS, "fail", detail, hint)
    return Finding(STREAMS, "ok", f"{len(beats)} events arrived one by one in {arrived:.1f} s")


async def _beats(target: Target) -> list[tuple[float, float]]:
    """When each event was sent, by the server's clock, and when it came, by ours."""
    parser = SseParser()
    beats: list[tuple[float, float]] = []
    request = Request("GET", "/health/stream")
    async with link_of(target, give_up_after=0) as link, link.stream(request) as stream:
        while stream is not None and (read := await stream.read()):
            now = time.monotonic()
            beats += [(_sent(frame), now) for frame in parser.feed(read)]
    return beats


def _sent(beat: Frame) -> float:
    after_ms = payload_of(beat).get("after_ms")
    return after_ms / 1000 if isinstance(after_ms, int | float) else 0.0
