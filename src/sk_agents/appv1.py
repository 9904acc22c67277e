"""Serves a `skagents/v1` file."""

from __future__ import annotations

import logging

from fastapi import FastAPI

from sk_agents.agent_assembly import agent_address, build_named_model
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.settings import Settings, variable
from sk_agents.engine.ports import Model
from sk_agents.exceptions import ConfigurationError
from sk_agents.skagents.models import Handler
from sk_agents.skagents.routes import mount
from sk_agents.skagents.v1.config import ChatConfig, SequentialConfig, read_config
from sk_agents.skagents.v1.handlers import ChatHandler, SequentialHandler
from sk_agents.skagents.v1.structured import StructuredOutput
from sk_agents.wiring import ServerParts

logger = logging.getLogger(__name__)

TRANSFORMER = "structured_output_transformer_model"


class AppV1:
    @staticmethod
    def run(app: FastAPI, file: AgentFile, settings: Settings) -> None:
        """Mount the routes of one file.

        Raises:
            ConfigurationError: its types or tasks cannot be used; names the file and the field.
        """
        source = f"{file.name}:{file.version}"
        config = read_config(file, settings)
        output_type = None
        handler: Handler
        match config:
            case ChatConfig():
                handler = ChatHandler(agent_address(file), source)
            case SequentialConfig():
                output_type = config.output_type
                handler = SequentialHandler(
                    config,
                    source,
                    lambda agent: agent_address(file, agent),
                    _output(file, config, settings, app.state.parts),
                )
        mount(app, file, handler, input_type=config.input_type, output_type=output_type)


def _output(
    file: AgentFile, config: SequentialConfig, settings: Settings, parts: ServerParts
) -> StructuredOutput | None:
    if config.output_type is None:
        return None
    transformer = _transformer(file, settings, parts)
    try:
        # An operator who names a transformer has a model that cannot be held to a schema.
        is_held = TRANSFORMER not in settings.model_fields_set
        return StructuredOutput(config.output_type, transformer, is_held=is_held)
    except ConfigurationError as error:
        raise ConfigurationError(f"{file.path}: output_type: {error}") from error


def _transformer(file: AgentFile, settings: Settings, parts: ServerParts) -> Model | None:
    """The model that turns text into a type; the default one only where it can be reached."""
    name = settings.structured_output_transformer_model
    try:
        return build_named_model(name, file, settings, parts.clients)
    except ConfigurationError as error:
        if TRANSFORMER in settings.model_fields_set:
            raise ConfigurationError(f"{variable(TRANSFORMER)}: {error}") from error
        logger.warning(
            "%s: an answer that does not fit output_type fails: no %s",
            file.path,
            variable(TRANSFORMER),
        )
        return None
