"""The agents inside an agent file: what each says, thinks with and may use.

Files in the wild carry keys we do not know: they warn once. Inside the blocks that keep people
safe (`approvals`, `limits`, `mcp_servers`, `builtin`) an unknown key stops start-up: a typo must
not open a gate. Those blocks are kept as they are written; the rooms that enforce them read them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sk_agents.config.agent_file import AgentFile
from sk_agents.exceptions import ConfigurationError

logger = logging.getLogger(__name__)

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fill = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""An agent's block, given its place in the file, with what the block leaves to somebody else."""


class LimitsSpec(BaseModel):
    """Bounds of one run; what is left out keeps its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    model_rounds: Annotated[int, Field(ge=1, le=1000)] | None = None
    calls_per_round: Annotated[int, Field(ge=1, le=256)] | None = None
    run_seconds: Positive | None = None
    approval_seconds: Positive | None = None
    tool_result_bytes: Annotated[int, Field(ge=1024)] | None = None
    reply_bytes: Annotated[int, Field(ge=1024)] | None = None


class ContextSpec(BaseModel):
    """How many tokens a prompt and its answer may have together, and the answer's share of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    window: Annotated[int, Field(ge=256)] | None = None
    reserve: Annotated[int, Field(ge=0)] | None = None


class PriceSpec(BaseModel):
    """What a million tokens of the model cost."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    prompt: NotNegative
    completion: NotNegative
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"


class AgentSpec(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    name: str
    model: Annotated[str, Field(min_length=1)]
    system_prompt: str
    role: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    reasoning_effort: str | None = None
    openai_agent: str | None = None
    plugins: tuple[str, ...] = ()
    remote_plugins: tuple[str, ...] = ()
    mcp_servers: tuple[dict[str, Any], ...] = ()
    base_url: str | None = None
    api_key_env: str | None = None
    builtin: dict[str, Any] | None = None
    approvals: dict[str, Any] | None = None
    limits: LimitsSpec = LimitsSpec()
    on_disconnect: Literal["cancel", "continue"] | None = None
    on_reject: Literal["continue", "cancel"] | None = None
    context: ContextSpec = ContextSpec()
    price: PriceSpec | None = None

    @property
    def unknown_keys(self) -> list[str]:
        return sorted(self.model_extra or ())


def read_agent_specs(file: AgentFile, fill: Fill | None = None) -> dict[str, AgentSpec]:
    """The file's agents, by where they stand in it: `spec.agent`, or `spec.agents[0]` and so on.

    Each block is read as `fill` returns it.

    Raises:
        ConfigurationError: naming the file and the field.
    """
    specs = {field: _read(file, field, block, fill) for field, block in _blocks(file)}
    for field, spec in specs.items():
        if spec.unknown_keys:
            logger.warning(
                "%s: %s: unknown keys are ignored: %s",
                file.path,
                field,
                ", ".join(spec.unknown_keys),
            )
    return specs


def _blocks(file: AgentFile) -> Iterator[tuple[str, Any]]:
    spec = file.document.get("spec")
    if not isinstance(spec, Mapping):
        raise _fault(file, "spec", "must be a mapping")
    if file.kind != "Sequential":
        if "agent" not in spec:
            raise _fault(file, "spec.agent", "is missing")
        yield "spec.agent", spec["agent"]
        return
    agents = spec.get("agents")
    if not isinstance(agents, list) or not agents:
        raise _fault(file, "spec.agents", "must be a list of agents")
    for position, block in enumerate(agents):
        yield f"spec.agents[{position}]", block


def _read(file: AgentFile, field: str, block: Any, fill: Fill | None) -> AgentSpec:
    if not isinstance(block, Mapping):
        raise _fault(file, field, "must be a mapping")
    # A key without a value, as YAML writes one, is a key left out.
    given = {key: value for key, value in block.items() if value is not None}
    try:
        return AgentSpec.model_validate(given if fill is None else fill(field, given))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _fault(file, f"{field}.{place}", _reason(first["type"], first["msg"])) from None


def _reason(kind: str, message: str) -> str:
    match kind:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "is not known here"
        case _:
            return f"is not usable: {message}"


def _fault(file: AgentFile, field: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{file.path}: {field} {reason}", path=str(file.path), field=field)
