"""Is the process alive, can it serve, and do streams from it arrive as they are sent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import orjson
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from sk_agents import __version__
from sk_agents.http.caller import current_caller, may_monitor
from sk_agents.http.limits import StreamSlots
from sk_agents.http.operations import Operation
from sk_agents.http.sse import EventStream, Frames, frame

logger = logging.getLogger(__name__)

PING_TIMEOUT = 2.0
# Enough to tell a stream from an answer that a proxy collected first, and soon over.
BEATS = 5
BEAT_SECONDS = 0.1
# Everyone may ask for them, so few are given at a time.
BEATING_AT_ONCE = 20
_BEATS = "A few small events, a moment apart: if all come at once, a proxy has held them back."
METRICS_PATH = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Returns if the dependency can serve now, raises if it cannot.
Ping = Callable[[], Awaitable[object]]
# What is shown beside a dependency's state; a function is asked each time.
Fact = str | Callable[[], str]


class WorkerGroup(Protocol):
    """The workers that serve one address together, as the one with this number sees them."""

    number: int

    def states(self) -> list[dict[str, Any]]:
        """Each worker: number, process, state, restarts."""

    async def metrics(self, own: bytes) -> bytes:
        """All workers' pages of metrics as one; this one's is `own`."""


class Health:
    """Answers the health routes from the dependencies known after start-up."""

    def __init__(self, *, ping_timeout: float = PING_TIMEOUT) -> None:
        self._ping_timeout = ping_timeout
        self._dependencies: dict[str, tuple[Ping, Mapping[str, Fact]]] = {}
        self._notes: dict[str, Callable[[], Any]] = {}
        self._started = time.monotonic()
        # The look under way, shared by all requests that come until it ends: a ping may write.
        self._look: asyncio.Task[list[str]] | None = None

    def watch(self, name: str, ping: Ping, **facts: Fact) -> None:
        """Ask at each readiness check; `facts` are shown beside the dependency's state."""
        self._dependencies[name] = (ping, facts)

    def note(self, name: str, facts: Callable[[], Any]) -> None:
        """Show these facts at each readiness check; they decide nothing."""
        self._notes[name] = facts

    def live(self) -> dict[str, Any]:
        return {"alive": True, "timestamp": _now()}

    async def ready(self) -> dict[str, Any]:
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._states())
        states = await asyncio.shield(self._look)
        dependencies = {
            name: {"status": state, **_told(facts)}
            for (name, (_, facts)), state in zip(self._dependencies.items(), states, strict=True)
        }
        return {
            "status": "healthy" if all(state == "up" for state in states) else "unhealthy",
            "timestamp": _now(),
            "version": __version__,
            "uptime": round(time.monotonic() - self._started, 3),
            "dependencies": dependencies,
            **{name: facts() for name, facts in self._notes.items()},
        }

    async def _states(self) -> list[str]:
        return await asyncio.gather(
            *(
                _state(name, ping, self._ping_timeout)
                for name, (ping, _) in self._dependencies.items()
            )
        )


def health_operations(
    health: Health, *, streams: int = BEATING_AT_ONCE, agent_version: str | None = None
) -> list[Operation]:
    """So many `streams` are given at a time. An agent's own version is no secret of operators."""

    async def live() -> JSONResponse:
        """Whether the process is there."""
        return JSONResponse(health.live())

    async def ready(request: Request) -> JSONResponse:
        """Whether it can serve now; for operators also the state of all it depends on."""
        report = await health.ready()
        status = 200 if report["status"] == "healthy" else 503
        if not await may_monitor(request):
            report = {name: report[name] for name in ("status", "timestamp")}
        if agent_version is not None:
            report["version"] = agent_version
        return JSONResponse(report, status)

    about: dict[str, Any] = {"tag": "health", "who": None}
    down = {503: "A dependency is down."}
    return [
        Operation(method="GET", path="/health/live", endpoint=live, **about),
        Operation(method="GET", path="/health/ready", endpoint=ready, others=down, **about),
        # Monitors ask with HEAD.
        Operation(method="HEAD", path="/health/live", endpoint=live, is_described=False, **about),
        Operation(method="HEAD", path="/health/ready", endpoint=ready, is_described=False, **about),
        Operation(
            method="GET",
            path="/health/stream",
            endpoint=HeartBeats(StreamSlots(streams)),
            summary="Do streams arrive as they are sent?",
            outcome=_BEATS,
            events=lambda: {"beat": (Beat, {"number": 1, "of": BEATS, "after_ms": 0})},
            errors=(429,),
            **about,
        ),
    ]


def agent_health_operations(prefix: str, health: Health, tag: str, version: str) -> list[Operation]:
    """The same for one agent: `{prefix}/health` and `{prefix}/health/live`."""
    live, ready, *_ = health_operations(health, agent_version=version)
    return [
        replace(ready, path=f"{prefix}/health", tag=tag, summary="Can it serve?"),
        replace(live, path=f"{prefix}/health/live", tag=tag, summary="Is it there?"),
    ]


def metrics_operation(
    page: Callable[[], bytes], workers: WorkerGroup | None = None, *, is_open: bool
) -> Operation:
    """The page that Prometheus reads: as an operator, unless it is open to everyone."""

    async def metrics() -> Response:
        own = page()
        whole = own if workers is None else await workers.metrics(own)
        return Response(whole, media_type=METRICS_TYPE)

    return Operation(
        method="GET",
        path=METRICS_PATH,
        endpoint=metrics,
        who=None if is_open else current_caller,
        roles=("operator",),
        is_described=False,
    )


class Beat(BaseModel):
    """How long after the first one it was sent."""

    model_config = ConfigDict(defer_build=True)

    number: int
    of: int
    after_ms: int


class HeartBeats:
    """A few small events, a moment apart."""

    def __init__(self, slots: StreamSlots) -> None:
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slots.held(""):
            await EventStream(_beats())(scope, receive, send)


async def _beats() -> Frames:
    """Each says how long after the first one it was sent."""
    began = time.monotonic()
    for number in range(BEATS):
        await asyncio.sleep(BEAT_SECONDS if number else 0)
        sent_ms = round((time.monotonic() - began) * 1000)
        beat = {"number": number + 1, "of": BEATS, "after_ms": sent_ms}
        yield [frame("beat", orjson.dumps(beat))]


def _told(facts: Mapping[str, Fact]) -> dict[str, str]:
    return {name: fact if isinstance(fact, str) else fact() for name, fact in facts.items()}


async def _state(name: str, ping: Ping, seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            await ping()
    except Exception as error:
        # A store may be the operator's own class.
        logger.warning(
            "dependency is down", extra={"dependency": name, "error": type(error).__name__}
        )
        return "down"
    return "up"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
