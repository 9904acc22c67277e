"""What a `skagents/v1` file says beside its agents: the types of its input and output, its tasks.

Everything is checked before the first request: a task's agent, its template, every type.

A task's instructions are a template that the operator wrote, filled in with what a client sent.
What a client sends is data and never becomes a template. The template runs in a sandbox: it sees
the input and earlier outputs, nothing of Python behind them, and its text is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from pydantic import BaseModel, ConfigDict, ValidationError

from sk_agents import ska_types
from sk_agents.config.agent_file import AgentFile
from sk_agents.config.class_loader import load_class
from sk_agents.config.settings import Settings
from sk_agents.exceptions import ConfigurationError, InvalidInput

logger = logging.getLogger(__name__)

USUAL_FILE = "custom_types.py"
BUILT_IN: dict[str, type[BaseModel]] = {
    kind.__name__: kind
    for kind in (
        ska_types.BaseInput,
        ska_types.BaseInputWithUserContext,
        ska_types.BaseMultiModalInput,
        ska_types.BaseMultiModalInputWithUserContext,
        ska_types.BaseEmbeddedImage,
    )
}
MAX_CHARACTERS = 1_000_000
MAX_BITS = 4_096


class TaskSpec(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    name: str
    task_no: int
    instructions: str
    agent: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class SequentialTask:
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
    tasks: tuple[SequentialTask, ...]


def read_config(file: AgentFile, settings: Settings) -> ChatConfig | SequentialConfig:
    """The file's own part of the configuration.

    Raises:
        ConfigurationError: naming the file and the field.
    """
    input_type = _load_type(file, "input_type", settings)
    has_output_type = file.document.get("output_type") is not None
    if file.kind == "Sequential":
        output_type = _load_type(file, "output_type", settings) if has_output_type else None
        return SequentialConfig(input_type, output_type, _tasks(file))
    if "chat_history" not in input_type.model_fields:
        raise _fault(file, "input_type", "has no chat_history, which a Chat answers")
    if has_output_type:
        logger.warning("%s: output_type is ignored: a Chat answers in text", file.path)
    return ChatConfig(input_type)


def _tasks(file: AgentFile) -> tuple[SequentialTask, ...]:
    spec = file.document.get("spec")
    blocks = spec.get("tasks") if isinstance(spec, Mapping) else None
    if not isinstance(blocks, list) or not blocks:
        raise _fault(file, "spec.tasks", "must be a list of tasks")
    agents = list(_agent_names(file))
    read = [_task(file, f"spec.tasks[{at}]", block, agents) for at, block in enumerate(blocks)]
    return tuple(task for _, task in sorted(read, key=lambda numbered: numbered[0]))


def _task(file: AgentFile, field: str, block: Any, agents: list[str]) -> tuple[int, SequentialTask]:
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
    return spec.task_no, SequentialTask(spec.name, spec.agent, instructions)


def _agent_names(file: AgentFile) -> Iterator[str]:
    seen = set()
    for position, agent in enumerate(file.document["spec"].get("agents") or ()):
        name = agent.get("name") if isinstance(agent, Mapping) else None
        if name in seen:
            raise _fault(file, f"spec.agents[{position}].name", f"'{name}' is there twice")
        seen.add(name)
        yield str(name)


def _load_type(file: AgentFile, field: str, settings: Settings) -> type[BaseModel]:
    """The type that this field of the file names.

    Raises:
        ConfigurationError: it names none, or there is no such class; says the file and the field.
    """
    name: Any = file.document.get(field)
    if name is None:
        raise ConfigurationError(f"{file.path}: {field} is missing")
    if not isinstance(name, str):
        raise ConfigurationError(f"{file.path}: {field} must be the name of a type")
    if name in BUILT_IN:
        return BUILT_IN[name]
    beside = file.path.parent / USUAL_FILE
    source = f"{file.path}: {field}"
    if settings.types_module is not None:
        source = f"{source}: TA_TYPES_MODULE"
        return load_class(settings.types_module, name, BaseModel, source=source)
    if beside.is_file():
        return load_class(str(beside), name, BaseModel, source=source)
    known = ", ".join(BUILT_IN)
    raise ConfigurationError(
        f"{source}: '{name}' is none of {known}, and there is neither TA_TYPES_MODULE nor a file "
        f"{USUAL_FILE} beside it"
    )


class _Sandbox(SandboxedEnvironment):
    # What multiplies can use up all memory in one step.
    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if _product_size(operator, left, right) > MAX_CHARACTERS:
            raise SecurityError(f"the result of {operator} would be too large")
        return super().call_binop(context, operator, left, right)


def _product_size(operator: str, left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * (right if operator == "**" else 1) + right.bit_length()
        return 0 if bits <= MAX_BITS else MAX_CHARACTERS + 1
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, Sized) and isinstance(times, int):
            return len(sequence) * times
    return 0


_SANDBOX = _Sandbox()


class Instructions:
    """A compiled template."""

    def __init__(self, source: str) -> None:
        """
        Raises:
            ConfigurationError: it is not a template.
        """
        try:
            self._template = _SANDBOX.from_string(source)
        except TemplateSyntaxError as error:
            raise ConfigurationError(
                f"is not a template: {error.message} (line {error.lineno})"
            ) from None

    def rendered(self, values: Mapping[str, Any]) -> str:
        """The text for the model.

        Raises:
            InvalidInput: these values cannot be filled in, or the text would be too long.
        """
        pieces: list[str] = []
        left = MAX_CHARACTERS
        try:
            for piece in self._template.generate(values):
                left -= len(piece)
                if left < 0:
                    raise InvalidInput("The task's instructions become too long with this input.")
                pieces.append(piece)
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            # The message may quote the input.
            logger.warning("instructions failed", extra={"error": type(error).__name__})
            raise InvalidInput(
                "The task's instructions cannot be filled in with this input."
            ) from error
        return "".join(pieces)


def _fault(file: AgentFile, field: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{file.path}: {field} {reason}", path=str(file.path), field=field)
