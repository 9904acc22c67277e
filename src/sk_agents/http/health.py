"""Is the process alive, and can it serve."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from sk_agents import __version__

logger = logging.getLogger(__name__)

PING_TIMEOUT = 2.0

# Returns if the dependency can serve now, raises if it cannot.
Ping = Callable[[], Awaitable[object]]


class Health:
    """Answers the health routes from the dependencies known after start-up."""

    def __init__(self, *, ping_timeout: float = PING_TIMEOUT) -> None:
        self._ping_timeout = ping_timeout
        self._dependencies: dict[str, tuple[Ping, Mapping[str, str]]] = {}
        self._notes: dict[str, Callable[[], Any]] = {}
        self._started = time.monotonic()

    def watch(self, name: str, ping: Ping, **facts: str) -> None:
        """Ask at each readiness check; `facts` are shown beside the dependency's state."""
        self._dependencies[name] = (ping, facts)

    def note(self, name: str, facts: Callable[[], Any]) -> None:
        """Show these facts at each readiness check; they decide nothing."""
        self._notes[name] = facts

    def live(self) -> dict[str, Any]:
        return {"alive": True, "timestamp": _now()}

    async def ready(self) -> dict[str, Any]:
        states = await asyncio.gather(
            *(
                _state(name, ping, self._ping_timeout)
                for name, (ping, _) in self._dependencies.items()
            )
        )
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


def health_routes(health: Health) -> APIRouter:
    router = APIRouter(prefix="/health", tags=["health"])

    @router.get("/live")
    async def live() -> JSONResponse:
        return JSONResponse(health.live())

    @router.get("/ready", responses={503: {"description": "A dependency is down."}})
    async def ready() -> JSONResponse:
        report = await health.ready()
        return JSONResponse(report, 200 if report["status"] == "healthy" else 503)

    return router


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
