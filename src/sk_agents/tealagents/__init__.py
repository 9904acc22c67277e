"""Teal's stateful API: sessions, tasks and requests over the engine's threads and runs."""

from __future__ import annotations

from sk_agents.engine.engine import Engine
from sk_agents.exceptions import ConfigurationError
from sk_agents.tealagents import v1alpha1
from sk_agents.tealagents.v1alpha1.config import ServedTealAgent
from sk_agents.tealagents.v1alpha1.handler import TealAgentsV1Alpha1Handler

VERSIONS = {"v1alpha1": v1alpha1.handle}


def handle(version: str, engine: Engine, served: ServedTealAgent) -> TealAgentsV1Alpha1Handler:
    """The handler of this version of the API.

    Raises:
        ConfigurationError: there is no such version.
    """
    if version not in VERSIONS:
        raise ConfigurationError(f"tealagents/{version} is not known; known are {[*VERSIONS]}")
    return VERSIONS[version](engine, served)
