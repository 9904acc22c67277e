"""A server that requires a class of durability of its store, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from sk_agents.app import create_app
from sk_agents.config.settings import Settings

Readiness = Callable[[], Awaitable[tuple[int, str]]]


@asynccontextmanager
async def requiring(durability: str, **settings: Any) -> AsyncIterator[Readiness]:
    """The status of its readiness, and the class that its store is of. Raises what keeps it from
    starting."""
    app = create_app(Settings.model_validate({"required_durability": durability, **settings}))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):

        async def readiness() -> tuple[int, str]:
            answer = await client.get("/health/ready")
            return answer.status_code, answer.json()["dependencies"]["store"]["durability"]

        yield readiness
