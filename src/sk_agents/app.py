"""The ASGI application.

`uvicorn sk_agents.app:app` works: `app` is built from the environment when it is first asked
for, so importing this module does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from sk_agents import __version__
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.config.agent_file import AgentFile, configured_paths, load_agent_files
from sk_agents.config.settings import Settings, load_settings
from sk_agents.http.caller import CallerCheck
from sk_agents.http.correlation import CorrelationMiddleware
from sk_agents.http.errors import install_error_handlers
from sk_agents.http.health import Health, health_routes, page_routes
from sk_agents.wiring import build_authorizer, build_house, open_house

# Spans, metrics and logs are ours.
NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}

_lock = threading.Lock()


def create_app(
    settings: Settings,
    agents: Sequence[AgentFile] = (),
    *,
    authorizer: RequestAuthorizer | None = None,
) -> FastAPI:
    """The application for these agents; its lifespan opens and closes the resources.

    Raises:
        ConfigurationError: the settings name a class or a store that cannot be used.
    """
    house = build_house(settings, agents)
    stores = house.stores
    kind = str(stores.main).partition(":")[0]
    health = Health()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.engines = await open_house(stack, house)
            health.watch("store", stores.main.ping, kind=kind, durability=stores.main.durability)
            if stores.tasks is not stores.main:
                health.watch("tasks", stores.tasks.ping, kind=str(settings.persistence_class))
            yield

    app = FastAPI(
        title="Teal Agents",
        version=__version__,
        lifespan=lifespan,
        redoc_url=None,
        # A redirect would drop a body and an Authorization header.
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    app.state.settings = settings
    app.state.house = house
    app.state.caller_check = CallerCheck(
        build_authorizer(settings) if authorizer is None else authorizer,
        timeout=settings.authorizer_timeout,
        allow_insecure=settings.allow_insecure_auth,
    )
    app.add_middleware(CorrelationMiddleware)
    install_error_handlers(app)
    app.include_router(health_routes(health))
    app.include_router(page_routes([f"{agent.name} {agent.version}" for agent in agents], kind))
    return app


def __getattr__(name: str) -> FastAPI:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _lock:
        if "app" not in globals():
            settings = load_settings()
            agents = load_agent_files(configured_paths(settings.service_config))
            globals()["app"] = create_app(settings, agents)
        app: FastAPI = globals()["app"]
        return app
