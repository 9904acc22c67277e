"""Serves a `skagents/v2alpha1` file."""

from __future__ import annotations

from sk_agents.agent_assembly import agent_address
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.settings import Settings
from sk_agents.http.front import TealApp
from sk_agents.skagents.routes import serve_agent_file
from sk_agents.skagents.v1.handlers import ChatHandler
from sk_agents.skagents.v2alpha1 import INPUT_TYPE, warn_of_types


class AppV2:
    @staticmethod
    def run(app: TealApp, file: AgentFile, settings: Settings) -> None:
        """Mount the routes of one file."""
        warn_of_types(file)
        handler = ChatHandler(agent_address(file), f"{file.name}:{file.version}")
        serve_agent_file(app, file, handler, input_type=INPUT_TYPE)
