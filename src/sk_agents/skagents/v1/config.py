"""What a `skagents/v1` file says beside its agents: the types of its input and output, its tasks.

Everything is checked before the first request: a task's agent, its template, every type.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sk_agents.config.agent_file import AgentFile
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError
from sk_agents.skagents.input_types import load_type
from sk_agents.skagents.v1.instructions import Instructions

logger = logging.getLogger(__name__)


class TaskSpec(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    name: str
    task_no: int
    instructions: str
    agent: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """`agent` is the name of one of the file's agents."""

    name: str
    agent: str
    instructions: Instructions


@dataclass(frozen=True, slots=True)
class ChatConfig:
    input_type: type[BaseModel]


@dataclass(frozen=True, slots=True)
class SequentialConfig:
    """`tasks` are in the order of their numbers; `output_type` is the last one's."""

    input_type: type[BaseModel]
    output_type: type[BaseModel] | None
    tasks: tuple[Task, ...]


def read_config(file: AgentFile, settings: Settings) -> ChatConfig | SequentialConfig:
    """The file's own part of the configuration.

    Raises:
        ConfigurationError: naming the file and the field.
    """
    input_type = load_type(file, "input_type", settings)
    has_output_type = file.document.get("output_type") is not None
    if file.kind == "Sequential":
        output_type = load_type(file, "output_type", settings) if has_output_type else None
        return SequentialConfig(input_type, output_type, _tasks(file))
    if "chat_history" not in input_type.model_fields:
        raise _fault(file, "input_type", "has no chat_history, which a Chat answers")
    if has_output_type:
        logger.warning("%s: output_type is ignored: a Chat answers in text", file.path)
    return ChatConfig(input_type)


def _tasks(file: AgentFile) -> tuple[Task, ...]:
    spec = file.document.get("spec")
    blocks = spec.get("tasks") if isinstance(spec, Mapping) else None
    if not isinstance(blocks, list) or not blocks:
        raise _fault(file, "spec.tasks", "must be a list of tasks")
    agents = list(_agent_names(file))
    read = [_task(file, f"spec.tasks[{at}]", block, agents) for at, block in enumerate(blocks)]
    return tuple(task for _, task in sorted(read, key=lambda numbered: numbered[0]))


def _task(file: AgentFile, field: str, block: Any, agents: list[str]) -> tuple[int, Task]:
    try:
        spec = TaskSpec.model_validate(block)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in (field, *first["loc"]))
        raise _fault(file, place, f"is not usable: {first['msg']}") from None
    if spec.model_extra:
        unknown = ", ".join(sorted(spec.model_extra))
        logger.warning("%s: %s: unknown keys are ignored: %s", file.path, field, unknown)
    if spec.agent not in agents:
        raise _fault(file, f"{field}.agent", f"'{spec.agent}' is none of spec.agents")
    try:
        instructions = Instructions(spec.instructions)
    except ConfigurationError as error:
        raise _fault(file, f"{field}.instructions", str(error)) from None
    return spec.task_no, Task(spec.name, spec.agent, instructions)


def _agent_names(file: AgentFile) -> Iterator[str]:
    seen = set()
    for position, agent in enumerate(file.document["spec"].get("agents") or ()):
        name = agent.get("name") if isinstance(agent, Mapping) else None
        if name in seen:
            raise _fault(file, f"spec.agents[{position}].name", f"'{name}' is there twice")
        seen.add(name)
        yield str(name)


def _fault(file: AgentFile, field: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{file.path}: {field} {reason}", path=str(file.path), field=field)
