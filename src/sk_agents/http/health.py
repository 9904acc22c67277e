"""Is the process alive, can it serve, and do streams from it arrive as they are sent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from fastapi import APIRouter
from fastapi.responses import JSONResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sk_agents import __version__
from sk_agents.http.sse import EventStream, Frames, frame
from sk_agents.http.streams import StreamSlots

logger = logging.getLogger(__name__)

PING_TIMEOUT = 2.0
# Enough to tell a stream from an answer that somebody collected first, and soon over.
BEATS = 5
BEAT_SECONDS = 0.1
# Anybody may ask for them, so few are given at a time.
BEATING_AT_ONCE = 20
_BEATS = "A few small events, a moment apart: whoever gets them all at once has a proxy before it."
_BEAT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"const": "beat"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}

# Returns if the dependency can serve now, raises if it cannot.
Ping = Callable[[], Awaitable[object]]


class Health:
    """Answers the health routes from the dependencies known after start-up."""

    def __init__(self, *, ping_timeout: float = PING_TIMEOUT) -> None:
        self._ping_timeout = ping_timeout
        self._dependencies: dict[str, tuple[Ping, Mapping[str, str]]] = {}
        self._notes: dict[str, Callable[[], Any]] = {}
        self._started = time.monotonic()
        # The look under way, shared by all requests that come until it ends: a ping may write.
        self._look: asyncio.Task[list[str]] | None = None

    def watch(self, name: str, ping: Ping, **facts: str) -> None:
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
            name: {"status": state, **facts}
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


def health_routes(health: Health, *, streams: int = BEATING_AT_ONCE) -> APIRouter:
    """So many `streams` are given at a time."""
    router = APIRouter(prefix="/health", tags=["health"])

    # Monitors ask with HEAD.
    @router.head("/live", include_in_schema=False)
    @router.get("/live")
    async def live() -> JSONResponse:
        return JSONResponse(health.live())

    @router.head("/ready", include_in_schema=False)
    @router.get("/ready", responses={503: {"description": "A dependency is down."}})
    async def ready() -> JSONResponse:
        report = await health.ready()
        return JSONResponse(report, 200 if report["status"] == "healthy" else 503)

    slots = StreamSlots(streams)

    @router.get(
        "/stream",
        response_class=Response,
        responses={
            200: {"description": _BEATS, "content": {"text/event-stream": {"schema": _BEAT}}},
            429: {"description": "Too many ask for it at once."},
        },
    )
    async def stream() -> Response:
        return HeartBeats(slots)

    return router


class HeartBeats(Response):
    """Raises LimitExceeded when it is to be sent and too many are being sent."""

    def __init__(self, slots: StreamSlots) -> None:
        super().__init__()
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
