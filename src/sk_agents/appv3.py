"""Serves files of `apiVersion: tealagents/v1alpha1`."""

from __future__ import annotations

from sk_agents.agent_assembly import agent_address
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.settings import Settings
from sk_agents.config.store_url import own_class_url
from sk_agents.http.front import TealApp
from sk_agents.http.health import Health
from sk_agents.tealagents.routes import teal_operations
from sk_agents.tealagents.v1alpha1.config import ServedTealAgent, read_config


class AppV3:
    @staticmethod
    def run(app: TealApp, file: AgentFile, settings: Settings) -> None:
        """Add the routes of one file's agent.

        Raises:
            ConfigurationError: the file is not one of this API, naming file and field.
        """
        config = read_config(file)
        served = ServedTealAgent(
            agent=agent_address(file),
            config=config,
            hide_existence=settings.hide_existence,
            names_task=settings.persistence_module is not None and own_class_url(settings) is None,
            request_wait=settings.request_wait,
        )
        stores = app.state.parts.stores
        health = Health()
        health.watch(
            "store", stores.checked(stores.tasks.ping), durability=lambda: stores.tasks.durability
        )
        app.add_operations(teal_operations(served, health, app.about))
