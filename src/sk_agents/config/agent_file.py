"""Agent files: which API serves each, under which name, and the agents inside its `spec`.

An unknown key is ignored with a warning: published files have some. In the blocks that limit an
agent (`approvals`, `budget`, `limits`, `mcp_servers`, `builtin`) it stops the start: a typing
error must not remove a limit. So does such a block that is misspelt, indented wrongly or written
where nothing reads it. Most are kept as they are written; the rooms that enforce them read them.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from sk_agents.config.amounts import Amounts, read_amounts
from sk_agents.config.strict_yaml import read_yaml
from sk_agents.exceptions import ConfigurationError

logger = logging.getLogger(__name__)

# Looked for in the current directory, as the public project does; there need not be one.
USUAL_PATH = Path("agents/config.yaml")
# First path segments that belong to the server itself.
RESERVED_NAMES = frozenset(
    "agents approvals assets chat chats docs favicon.ico grants health me metrics oauth "
    "openapi.json redoc robots.txt sign-in static usage".split()
)
# Both become one segment of a route's path.
URL_SEGMENT = re.compile(r"[^/\\?#%{}\x00-\x1f\x7f]{1,128}")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fill = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""Completes an agent's block, given the block's place in the file."""
_STRICT = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


@dataclass(frozen=True)
class ApiVersion:
    """The field with the agent's name, the kinds, and all fields of an API's files."""

    name_field: str
    kinds: tuple[str | None, ...]
    fields: frozenset[str]


_FIELDS = frozenset(
    {"apiVersion", "kind", "version", "description", "input_type", "output_type", "spec"}
)
# Published files of the two newer versions say `Agent`, `Chat` or nothing at all.
_NAMED = ApiVersion("name", ("Agent", "Chat", None), _FIELDS | {"name", "metadata"})
API_VERSIONS = {
    "skagents/v1": ApiVersion("service_name", ("Sequential", "Chat"), _FIELDS | {"service_name"}),
    "skagents/v2alpha1": _NAMED,
    "tealagents/v1alpha1": _NAMED,
}


@dataclass(frozen=True)
class AgentFile:
    """One agent as its file describes it; `document` is the whole file."""

    path: Path
    api_version: str
    kind: str | None
    name: str
    version: str
    description: str | None
    document: Mapping[str, Any] = field(repr=False)


class LimitsSpec(BaseModel):
    """Bounds of one run; what is left out keeps its default."""

    model_config = _STRICT

    model_rounds: Annotated[int, Field(ge=1, le=1000)] | None = None
    calls_per_round: Annotated[int, Field(ge=1, le=256)] | None = None
    run_seconds: Positive | None = None
    approval_seconds: Positive | None = None
    tool_result_bytes: Annotated[int, Field(ge=1024)] | None = None
    tool_attachment_bytes: Annotated[int, Field(ge=0)] | None = None
    reply_bytes: Annotated[int, Field(ge=1024)] | None = None
    tool_calls: Annotated[int, Field(ge=1)] | None = None


class ContextSpec(BaseModel):
    """How many tokens a prompt and its answer may have together, and the answer's share of them."""

    model_config = _STRICT

    window: Annotated[int, Field(ge=256)] | None = None
    reserve: Annotated[int, Field(ge=0)] | None = None


class PriceSpec(BaseModel):
    """What a million tokens of the model cost."""

    model_config = _STRICT

    prompt: NotNegative
    completion: NotNegative
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"


BudgetAmounts = Annotated[
    Amounts, BeforeValidator(lambda text: text if isinstance(text, Amounts) else read_amounts(text))
]


class BudgetSpec(BaseModel):
    """What may be spent on this agent: in one turn, by one user in a day, by all users in a day.

    From `soft`, a share of one of them, a turn asks a person before it goes on.
    """

    model_config = _STRICT

    run: BudgetAmounts | None = None
    user: BudgetAmounts | None = None
    agent: BudgetAmounts | None = None
    soft: Annotated[float, Field(gt=0, lt=1)] | None = None


def _pattern(text: str) -> str:
    try:
        if re.compile(text).search("") is not None:
            raise ValueError("matches nothing at all, and so every text")
    except re.error as error:
        raise ValueError(f"is no pattern: {error.msg}") from None
    return text


class RedactSpec(BaseModel):
    """What is taken out of messages, answers and tool results: secrets of these kinds, and what
    matches one of the operator's own patterns. With `vault` the `tools` get it back."""

    model_config = _STRICT

    kinds: tuple[Literal["private_keys", "provider_keys", "cards", "url_passwords"], ...] = (
        "private_keys",
        "provider_keys",
        "cards",
        "url_passwords",
    )
    patterns: tuple[Annotated[str, AfterValidator(_pattern)], ...] = ()
    mode: Literal["remove", "vault"] = "remove"
    tools: tuple[Annotated[str, Field(min_length=1)], ...] | None = None

    @model_validator(mode="after")
    def _tools_go_with_the_vault(self) -> Self:
        if self.tools is not None and self.mode != "vault":
            raise ValueError("tools goes with mode: vault")
        return self


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


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
    openai_context: str | None = None
    plugins: tuple[str, ...] = ()
    remote_plugins: tuple[str, ...] = ()
    mcp_servers: tuple[dict[str, Any], ...] = ()
    base_url: str | None = None
    api_key_env: str | None = None
    api: Literal["chat", "responses", "azure", "anthropic", "gemini"] | None = None
    api_version: Annotated[str, Field(min_length=1)] | None = None
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    stop: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    seed: int | None = None
    client_cert: str | None = None
    client_key: str | None = None
    sees_images: bool | None = None
    reads_pdfs: bool | None = None
    builtin: dict[str, Any] | None = None
    approvals: dict[str, Any] | None = None
    limits: LimitsSpec = LimitsSpec()
    on_disconnect: Literal["cancel", "continue"] | None = None
    on_reject: Literal["continue", "cancel"] | None = None
    context: ContextSpec = ContextSpec()
    price: PriceSpec | None = None
    budget: BudgetSpec = BudgetSpec()
    redact: RedactSpec | bool = False
    titles: Annotated[str, Field(min_length=1)] | bool | None = None


# Without these blocks an agent starts just as well: asking less, unlimited, storing secrets. With
# what stands inside each of them.
_PROTECTING: Mapping[str, Collection[str]] = {
    "approvals": ("default", "rules", "expires_after"),
    "budget": BudgetSpec.model_fields,
    "limits": LimitsSpec.model_fields,
    "redact": RedactSpec.model_fields,
}
_NEAR = 0.8


def load_agent_files(paths: Iterable[Path]) -> list[AgentFile]:
    """Read every file and folder named, in order.

    Raises:
        ConfigurationError: a file is unusable, a folder has none, or two agents share an address.
    """
    agents = [agent for path in paths for agent in _load(path)]
    taken: dict[tuple[str, str], Path] = {}
    for agent in agents:
        first = taken.setdefault((agent.name, agent.version), agent.path)
        if first != agent.path:
            raise ConfigurationError(
                f"{agent.path}: '{agent.name}' version {agent.version} is also in {first}"
            )
    return list({agent.path: agent for agent in agents}.values())


def configured_paths(service_config: Path | None) -> list[Path]:
    """What to serve when the command names nothing: `TA_SERVICE_CONFIG`, else the usual file."""
    if service_config is not None:
        return [service_config]
    return [USUAL_PATH] if USUAL_PATH.is_file() else []


def read_agent_file(path: Path) -> AgentFile:
    return _parse(path, _mapping(path, read_yaml(path)))


def read_agent_specs(file: AgentFile, fill: Fill | None = None) -> dict[str, AgentSpec]:
    """The file's agents, by where they stand in it: `spec.agent`, or `spec.agents[0]` and so on.

    Each block is read as `fill` returns it.

    Raises:
        ConfigurationError: naming the file and the field.
    """
    _refuse_misplaced(file, "", file.document)
    specs = {place: _read(file, place, block, fill) for place, block in _blocks(file)}
    _refuse_misplaced(file, "spec.", file.document["spec"])
    for place, spec in specs.items():
        if spec.model_extra:
            names = ", ".join(_guessed(name) for name in sorted(spec.model_extra))
            logger.warning("%s: %s: unknown keys are ignored: %s", file.path, place, names)
    return specs


def _guessed(key: str) -> str:
    """An unknown key, with the one that may have been meant."""
    meant = get_close_matches(key, AgentSpec.model_fields, 1)
    return f"{key} (did you mean {meant[0]}?)" if meant else key


def _agent_paths(folder: Path) -> list[Path]:
    """The YAML files in a folder and the `config.yaml` of each folder in it."""
    return sorted({*folder.glob("*.yaml"), *folder.glob("*.yml"), *folder.glob("*/config.yaml")})


def _load(path: Path) -> list[AgentFile]:
    path = path.absolute()
    if not path.is_dir():
        return [read_agent_file(path)]
    agents = []
    for found in _agent_paths(path):
        document = read_yaml(found)
        if isinstance(document, dict) and "apiVersion" not in document:
            # Catalogs of plugins lie beside agent files.
            logger.warning("%s has no apiVersion: not an agent file, skipped", found)
        else:
            agents.append(_parse(found, _mapping(found, document)))
    if not agents:
        raise ConfigurationError(f"{path}: no agent file in this folder")
    return agents


def _parse(path: Path, document: Mapping[str, Any]) -> AgentFile:
    api = _api_version(path, document.get("apiVersion"))
    kind = document.get("kind")
    if kind not in api.kinds:
        choices = " or ".join(kind for kind in api.kinds if kind)
        raise _fault(path, "kind", f"must be {choices}")
    name = _name(path, api.name_field, document.get(api.name_field))
    unknown = sorted(str(key) for key in document.keys() - api.fields)
    if unknown:
        logger.warning("%s: unknown keys are ignored: %s", path, ", ".join(unknown))
    return AgentFile(
        path=path,
        api_version=document["apiVersion"],
        kind=kind,
        name=name,
        version=_version(path, document.get("version")),
        description=_description(path, document),
        document=document,
    )


def _api_version(path: Path, value: Any) -> ApiVersion:
    if value is None:
        raise _fault(path, "apiVersion", "is missing")
    api = API_VERSIONS.get(value) if isinstance(value, str) else None
    if api is None:
        known = ", ".join(API_VERSIONS)
        raise _fault(path, "apiVersion", f"'{value}' is not known; known are {known}")
    return api


def _name(path: Path, field_name: str, value: Any) -> str:
    if value is None:
        raise _fault(path, field_name, "is missing")
    name = _url_segment(path, field_name, value)
    if name.lower() in RESERVED_NAMES:
        raise _fault(path, field_name, f"'{name}' is reserved for the server's own paths")
    return name


def _version(path: Path, value: Any) -> str:
    if value is None:
        raise _fault(path, "version", "is missing")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _fault(path, "version", "must be text or a number")
    return _url_segment(path, "version", str(value))


def _url_segment(path: Path, field_name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _fault(path, field_name, "must be text")
    unfit = value in {".", ".."} or value != value.strip()
    if unfit or not URL_SEGMENT.fullmatch(value):
        raise _fault(path, field_name, "must be usable as one part of a URL's path")
    return value


def _description(path: Path, document: Mapping[str, Any]) -> str | None:
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise _fault(path, "metadata", "must be a mapping")
    in_metadata = (metadata or {}).get("description")
    text = document.get("description") if in_metadata is None else in_metadata
    if text is not None and not isinstance(text, str):
        name = "description" if in_metadata is None else "metadata.description"
        raise _fault(path, name, "must be text")
    return text


def _mapping(path: Path, document: Any) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: must be a mapping with an apiVersion")
    return document


def _blocks(file: AgentFile) -> Iterator[tuple[str, Any]]:
    spec = file.document.get("spec")
    if not isinstance(spec, Mapping):
        raise _fault(file.path, "spec", "must be a mapping")
    if file.kind != "Sequential":
        if "agent" not in spec:
            raise _fault(file.path, "spec.agent", "is missing")
        yield "spec.agent", spec["agent"]
        return
    agents = spec.get("agents")
    if not isinstance(agents, list) or not agents:
        raise _fault(file.path, "spec.agents", "must be a list of agents")
    for position, block in enumerate(agents):
        yield f"spec.agents[{position}]", block


def _read(file: AgentFile, place: str, block: Any, fill: Fill | None) -> AgentSpec:
    if not isinstance(block, Mapping):
        raise _fault(file.path, place, "must be a mapping")
    _refuse_unprotected(file, place, block)
    # A key without a value, as YAML writes one, is a key left out.
    given = {key: value for key, value in block.items() if value is not None}
    try:
        return AgentSpec.model_validate(given if fill is None else fill(place, given))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join((place, *map(str, first["loc"])))
        raise _fault(file.path, name, _reason(first["type"], first["msg"])) from None


def _refuse_unprotected(file: AgentFile, place: str, block: Mapping[Any, Any]) -> None:
    """Raises ConfigurationError: a key that is ignored was to protect, so the file does not do what
    its author believes."""
    for key in (key for key in map(str, block) if key not in AgentSpec.model_fields):
        if (meant := _protecting_block(key)) is not None:
            raise _fault(file.path, f"{place}.{key}", f"is not known here; is {meant} meant?")
        for name, inside in _PROTECTING.items():
            # A block without a value and its keys beside it: they were not indented.
            is_empty = name in block and block[name] is None
            if key in inside and (is_empty or name == "limits"):
                raise _fault(file.path, f"{place}.{key}", f"belongs into {name}: indent it there")


def _refuse_misplaced(file: AgentFile, place: str, mapping: Mapping[Any, Any]) -> None:
    """Raises ConfigurationError: a block that protects stands where nothing reads it."""
    for key in map(str, mapping):
        if (meant := _protecting_block(key)) is not None:
            where = "spec.agents" if file.kind == "Sequential" else "spec.agent"
            raise _fault(file.path, f"{place}{key}", f"is not read here; {meant} is in {where}")


def _protecting_block(key: str) -> str | None:
    near = difflib.get_close_matches(key.lower(), _PROTECTING, 1, _NEAR)
    return near[0] if near else None


def _reason(kind: str, message: str) -> str:
    reasons = {"missing": "is missing", "extra_forbidden": "is not known here"}
    return reasons.get(kind, f"is not usable: {message}")


def _fault(path: Path, field_name: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {field_name} {reason}", path=str(path), field=field_name)
