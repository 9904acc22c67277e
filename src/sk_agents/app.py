"""The ASGI application.

`uvicorn sk_agents.app:app` works: `app` is built from the environment when it is first asked
for, so importing this module does nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any

from fastapi import FastAPI

from sk_agents import __version__
from sk_agents.agent_assembly import ServedAgent
from sk_agents.authorization.request_authorizer import RequestAuthorizer
from sk_agents.authorization.roles import RolesFile, read_role_map
from sk_agents.chats.requests import ChatResources
from sk_agents.chats.routes import chat_operations, sign_in_operations
from sk_agents.chats.sign_ins import SignInEndpoints
from sk_agents.config.agent_file import AgentFile, configured_paths, load_agent_files
from sk_agents.config.foreign_variables import check_foreign_variables
from sk_agents.config.settings import Settings, environment, export_environment, load_settings
from sk_agents.http.account import account_operations
from sk_agents.http.audit import audit_operations
from sk_agents.http.caller import CallerCheck
from sk_agents.http.front import TealApp
from sk_agents.http.health import Health, WorkerGroup, health_operations, metrics_operation
from sk_agents.http.hosts import accepted_hosts
from sk_agents.http.limits import Limits, Quotas, StreamSlots
from sk_agents.http.page import page_operations
from sk_agents.http.sessions import session_operations, session_report
from sk_agents.todo_chat.routes import todo_chat_operations
from sk_agents.wire.views import AgentView, SessionReport, SkillView, ToolView
from sk_agents.wiring import (
    Engines,
    ServerParts,
    build_authorizer,
    build_context,
    build_parts,
    build_sign_ins,
    open_engines,
    sign_in_document,
    stream_census,
)

# Those whose conversations outlive a request, by their name in the store.
KEPT_SURFACES = ("chats", "tealagents")
# An emoji may consist of several code points.
MAX_ICON = 8
COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")

_lock = threading.Lock()


def create_app(
    settings: Settings,
    agents: Sequence[AgentFile] = (),
    *,
    authorizer: RequestAuthorizer | None = None,
    workers: WorkerGroup | None = None,
) -> TealApp:
    """The application for these agents; its lifespan opens and closes the resources.

    `workers` are the processes that serve it together, if it is one of several.

    Raises:
        ConfigurationError: the settings name a class or a store that cannot be used.
    """
    parts = build_parts(settings, agents)
    authorizer = build_authorizer(settings) if authorizer is None else authorizer
    stores = parts.stores
    kind = str(stores.main).partition(":")[0]
    health = Health()
    role_map = read_role_map(settings.roles)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            tables = {"access_key": authorizer.credentials, "role": role_map.described}
            engines = app.state.engines = await open_engines(stack, parts, tables)
            app.state.caller_check.audit = engines.audit
            slots: StreamSlots = app.state.limits.slots
            if slots.is_limited:
                counted = stream_census(parts, slots.by_user, partial(setattr, slots, "elsewhere"))
                await stack.enter_async_context(counted)
            ping = stores.checked(engines.main.ping)
            health.watch("store", ping, kind=kind, durability=lambda: stores.main.durability)
            if stores.tasks is not stores.main:
                health.watch("tasks", engines.tasks.ping, kind=str(settings.persistence_class))
            if engines.copies is not None:
                health.note("interaction_store", engines.copies.facts)
            if isinstance(role_map, RolesFile) and not authorizer.insecure:
                health.watch("roles", role_map.ping, kind="file")
            if type(authorizer).ping is not RequestAuthorizer.ping:
                health.watch("authorizer", authorizer.ping, kind=type(authorizer).__name__)
            if parts.clients.mcp.is_used:
                health.note("mcp", parts.clients.mcp.statuses)
            if workers is not None:
                health.note("worker", lambda: workers.number)
                health.note("workers", workers.states)
            yield

    telemetry = parts.telemetry
    app = TealApp(
        title="Teal Agents",
        version=__version__,
        lifespan=lifespan,
        servers=[{"url": settings.agent_base_url or "/"}],
        contact=_contact(settings),
        hosts=accepted_hosts(settings.allowed_hosts, settings.host),
        origins=settings.allowed_origins,
        requests=telemetry.requests if telemetry is not None else None,
    )
    app.state.settings = settings
    app.state.parts = parts
    app.state.limits = _limits(settings, parts, is_one_user=authorizer.insecure)
    app.state.caller_check = CallerCheck(
        authorizer,
        timeout=settings.authorizer_timeout,
        allow_insecure=settings.allow_insecure_auth,
        roles=role_map,
        open_monitoring=settings.open_monitoring,
    )
    chats = ChatResources(
        lambda: [_agent_view(*item) for item in parts.agents.items()],
        app.state.limits,
        parts.spending.ledger.rows,
        parts.spending.budget.report,
    )
    app.add_operations(chat_operations(chats, build_context(parts.agents)))
    sign_ins = SignInEndpoints(chats, build_sign_ins(parts), settings.public_url, sign_in_document)
    app.add_operations(sign_in_operations(sign_ins))
    app.add_operations(todo_chat_operations(list(parts.agents)))
    for file in agents:
        _add_agent_routes(app, file, settings)
    app.add_operations(health_operations(health))

    def opened() -> Engines:
        engines: Engines = app.state.engines
        return engines

    app.add_operations(
        audit_operations(
            lambda *query: opened().audit_report(*query), lambda: opened().last_checkpoint()
        )
    )

    async def sessions(since: datetime, user_id: str | None, limit: int) -> SessionReport:
        slots: StreamSlots = app.state.limits.slots
        return await session_report(opened().stores, slots.everywhere, since, user_id, limit)

    app.add_operations(session_operations(sessions))
    if telemetry is not None and telemetry.page is not None:
        is_open: bool = app.state.caller_check.open_monitoring
        app.add_operations([metrics_operation(telemetry.page, workers, is_open=is_open)])
    names = [f"{agent.name} {agent.version}" for agent in agents]
    app.add_operations(account_operations(authorizer.sign_in))
    app.add_operations(page_operations(names, kind, sign_in=authorizer.sign_in))
    return app


def try_agent_routes(parts: ServerParts, agents: Sequence[AgentFile], settings: Settings) -> None:
    """What only an agent's own API reads: types, tasks, instructions.

    Raises:
        ConfigurationError: serving this file would stop the start; names the file and the field.
    """
    app = TealApp()
    app.state.parts = parts
    for file in agents:
        _add_agent_routes(app, file, settings)


def _limits(settings: Settings, parts: ServerParts, *, is_one_user: bool) -> Limits:
    """With `is_one_user` all requests are one user's: a limit for one user would lock all out."""
    pending = None if is_one_user else settings.max_pending_approvals
    calls = max((one.agent.limits.calls_per_round for one in parts.agents.values()), default=1)
    return Limits(
        StreamSlots(None if is_one_user else settings.streams_per_user),
        {
            surface: Quotas(
                surface, chats=settings.max_chats_per_user, pending=pending, calls=calls
            )
            for surface in KEPT_SURFACES
        },
        body_bytes=settings.max_body_bytes,
        image_body_bytes=settings.max_image_body_bytes,
        body_seconds=settings.body_timeout,
        admit_request=requests.require if (requests := parts.spending.requests) else None,
    )


def _add_agent_routes(app: TealApp, file: AgentFile, settings: Settings) -> None:
    """By the API that the file names. Each is imported by the first file that needs it: together
    they would take a seventh of a start."""
    match file.api_version:
        case "skagents/v1":
            from sk_agents.appv1 import AppV1  # noqa: PLC0415

            AppV1.run(app, file, settings)
        case "skagents/v2alpha1":
            from sk_agents.appv2 import AppV2  # noqa: PLC0415

            AppV2.run(app, file, settings)
        case "tealagents/v1alpha1":
            from sk_agents.appv3 import AppV3  # noqa: PLC0415

            AppV3.run(app, file, settings)
        case other:
            raise AssertionError(f"no API serves {other}")


def _contact(settings: Settings) -> dict[str, Any] | None:
    """Who provides the agents, as far as the operator says."""
    named = {"name": settings.provider_org, "url": settings.provider_url}
    return {key: value for key, value in named.items() if value} or None


def _agent_view(name: str, served: ServedAgent) -> AgentView:
    metadata = served.file.document.get("metadata") or {}
    skills = [
        SkillView(
            name=str(skill.get("name") or skill.get("id") or ""),
            description=str(skill.get("description") or ""),
            examples=[str(example) for example in skill.get("examples") or []],
        )
        for skill in metadata.get("skills") or []
        if isinstance(skill, dict)
    ]
    icon, colour = str(metadata.get("icon") or ""), str(metadata.get("colour") or "")
    return AgentView(
        name=name,
        description=served.file.description,
        model=served.model,
        examples=[example for skill in skills for example in skill.examples],
        skills=skills,
        icon=icon if 0 < len(icon) <= MAX_ICON else None,
        colour=colour.lower() if COLOUR.fullmatch(colour) else None,
        tools=[
            ToolView(
                name=spec.name,
                title=spec.title or _words(spec.name),
                description=spec.description,
                effect=spec.effect,
                parameters=dict(spec.parameters),
            )
            for spec in served.agent.toolbox.specs()
        ],
    )


def _words(tool: str) -> str:
    """`Desk-send_postcard` as "Send postcard"."""
    words = re.sub(r"[_\W]+", " ", tool.rpartition("-")[2]).strip()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", words)
    return words[:1].upper() + words[1:].lower() if words else tool


def __getattr__(name: str) -> FastAPI:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _lock:
        if "app" not in globals():
            settings = load_settings()
            configured = configured_paths(settings.service_config)
            check_foreign_variables(environment(configured))
            export_environment(configured)
            agents = load_agent_files(configured)
            globals()["app"] = create_app(settings, agents)
        app: FastAPI = globals()["app"]
        return app
