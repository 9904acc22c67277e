"""Serves a `skagents/v2alpha1` file."""

from __future__ import annotations

from fastapi import FastAPI

from sk_agents.agent_assembly import agent_address
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.settings import Settings
from sk_agents.skagents.routes import mount
from sk_agents.skagents.v1.handlers import ChatHandler
from sk_agents.skagents.v2alpha1 import INPUT_TYPE, warn_of_types


class AppV2:
    @staticmethod
    def run(app: FastAPI, file: AgentFile, settings: Settings) -> None:
        """Mount the routes of one file."""
        warn_of_types(file)
        handler = ChatHandler(agent_address(file), f"{file.name}:{file.version}")
        mount(app, file, handler, input_type=INPUT_TYPE)
