"""What this API reads of an agent file: its address and its description.

The agent inside `spec` is built elsewhere; here only its place is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from sk_agents.config.agent_file import AgentFile
from sk_agents.exceptions import ConfigurationError
from sk_agents.http.sse import KEEPALIVE_SECONDS

API_VERSION = "tealagents/v1alpha1"
# What its threads are called in the store.
SURFACE = "tealagents"
REQUEST_WAIT = 300.0


class Skill(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] | None = None
    input_modes: tuple[str, ...] | None = None
    output_modes: tuple[str, ...] | None = None


class Metadata(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    description: str | None = None
    skills: tuple[Skill, ...] = ()
    documentation_url: str | None = None


@dataclass(frozen=True, slots=True)
class TealAgentConfig:
    name: str
    version: str
    description: str
    metadata: Metadata

    @property
    def path(self) -> str:
        """Where its routes lie, as a server matches it."""
        return f"/{self.name}/{self.version}"

    @property
    def url(self) -> str:
        """The same as a client has to write it."""
        return quote(self.path)

    @property
    def source(self) -> str:
        return f"{self.name}:{self.version}"


@dataclass(frozen=True, slots=True)
class ServedTealAgent:
    """One agent as it is served: `agent` is its name in the engine.

    `names_task`: the store finds a request only through its task, so URLs of requests name both.
    `request_wait`: seconds until a client that waits for an answer gets 504. `keepalive`: seconds
    of silence after which a stream sends a keepalive.
    """

    agent: str
    config: TealAgentConfig
    hide_existence: bool = False
    names_task: bool = False
    request_wait: float = REQUEST_WAIT
    keepalive: float = KEEPALIVE_SECONDS


def read_config(file: AgentFile) -> TealAgentConfig:
    """The file as this API understands it.

    Raises:
        ConfigurationError: naming the file and the field.
    """
    if file.api_version != API_VERSION:
        raise _fault(file, "apiVersion", f"must be {API_VERSION}")
    spec = file.document.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(spec.get("agent"), Mapping):
        raise _fault(file, "spec.agent", "must be one agent")
    metadata = _metadata(file, file.document.get("metadata"))
    return TealAgentConfig(file.name, file.version, file.description or "", metadata)


def _metadata(file: AgentFile, given: Any) -> Metadata:
    try:
        return Metadata.model_validate(given or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, ("metadata", *first["loc"])))
        raise _fault(file, place, f"is not usable: {first['msg']}") from None


def _fault(file: AgentFile, field: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{file.path}: {field} {reason}", path=str(file.path), field=field)
