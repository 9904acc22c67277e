"""`apiVersion: tealagents/v1alpha1`."""

from __future__ import annotations

from sk_agents.engine.engine import Engine
from sk_agents.tealagents.v1alpha1.config import ServedTealAgent
from sk_agents.tealagents.v1alpha1.handler import TealAgentsV1Alpha1Handler


def handle(engine: Engine, served: ServedTealAgent) -> TealAgentsV1Alpha1Handler:
    """The handler of one agent's requests."""
    return TealAgentsV1Alpha1Handler(engine, served)
