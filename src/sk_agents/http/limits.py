"""What one request, one user may take. Every surface asks here; `create_app` fills it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from sk_agents.engine.engine import Engine
from sk_agents.http.body import BODY_SECONDS, MAX_BYTES, MAX_BYTES_WITH_IMAGES
from sk_agents.http.quotas import EngineQuota, Quotas
from sk_agents.http.streams import StreamSlots


@dataclass(frozen=True, slots=True)
class Limits:
    """`quotas` are by surface: those whose conversations are kept have one."""

    slots: StreamSlots
    quotas: Mapping[str, Quotas]
    body_bytes: int = MAX_BYTES
    image_body_bytes: int = MAX_BYTES_WITH_IMAGES
    body_seconds: float = BODY_SECONDS


def limits_of(connection: HTTPConnection) -> Limits:
    limits: Limits = connection.app.state.limits
    return limits


def quota_of(connection: HTTPConnection, engine: Engine, surface: str) -> EngineQuota:
    """What the engine asks before it begins a run."""
    return EngineQuota(limits_of(connection).quotas[surface], engine.catalog)
