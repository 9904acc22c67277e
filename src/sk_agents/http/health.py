"""Is the process alive, can it serve, and what does it serve."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, JSONResponse

from sk_agents import __version__

logger = logging.getLogger(__name__)

PING_TIMEOUT = 2.0
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Teal Agents</title>
</head>
<body>
<main>
<h1>Teal Agents</h1>
<p>This server is running, version {version}.</p>
<h2>Agents</h2>
{agents}
<h2>Store</h2>
<p>{store}</p>
<nav aria-label="More">
<ul>
<li><a href="/health/ready">Is everything ready?</a></li>
<li><a href="/openapi.json">Interface description</a></li>
</ul>
</nav>
</main>
</body>
</html>
"""


# Returns if the dependency can serve now, raises if it cannot.
Ping = Callable[[], Awaitable[object]]


class Health:
    """Answers the health routes from the dependencies known after start-up."""

    def __init__(self) -> None:
        self._dependencies: dict[str, tuple[Ping, Mapping[str, str]]] = {}
        self._started = time.monotonic()

    def watch(self, name: str, ping: Ping, **facts: str) -> None:
        """Ask at each readiness check; `facts` are shown beside the dependency's state."""
        self._dependencies[name] = (ping, facts)

    def live(self) -> dict[str, Any]:
        return {"alive": True, "timestamp": _now()}

    async def ready(self) -> dict[str, Any]:
        states = await asyncio.gather(
            *(_state(name, ping) for name, (ping, _) in self._dependencies.items())
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


def page_routes(agents: Sequence[str], store: str) -> APIRouter:
    """The page at `/`, the same for everybody: it says nothing about users or places."""
    items = "\n".join(f"<li>{escape(agent)}</li>" for agent in agents)
    page = PAGE.format(
        version=escape(__version__),
        agents=f"<ul>\n{items}\n</ul>" if items else "<p>None configured.</p>",
        store=escape(store),
    )
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    async def home() -> HTMLResponse:
        return HTMLResponse(page, headers=PAGE_HEADERS)

    return router


async def _state(name: str, ping: Ping) -> str:
    try:
        async with asyncio.timeout(PING_TIMEOUT):
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
