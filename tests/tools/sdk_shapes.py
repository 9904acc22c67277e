"""Objects with the fields that those of the OpenAI Agents SDK have; that library is not here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class ModelSettings:
    temperature: float | None = None
    top_p: float | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    reasoning: Any = None
    verbosity: str | None = None


@dataclass
class FunctionTool:
    name: str
    description: str
    params_json_schema: dict[str, Any]
    on_invoke_tool: Callable[[Any, str], Awaitable[Any]]
    is_enabled: Any = True
    tool_input_guardrails: list[Any] | None = None
    needs_approval: Any = False
    timeout_seconds: float | None = None
    tool_output_guardrails: list[Any] | None = None
    _is_agent_tool: bool = False
    _agent_instance: Any = None


@dataclass
class Agent:
    name: str
    instructions: Any = None
    model: Any = None
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    tools: list[Any] = field(default_factory=list)
    mcp_servers: list[Any] = field(default_factory=list)
    handoffs: list[Any] = field(default_factory=list)
    input_guardrails: list[Any] = field(default_factory=list)
    output_guardrails: list[Any] = field(default_factory=list)
    output_type: Any = None
    handoff_description: str | None = None
    reset_tool_choice: bool = True
    hooks: Any = None
    prompt: Any = None
    tool_use_behavior: Any = "run_llm_again"


@dataclass
class WebSearchTool:
    name: str = "web_search"


@dataclass
class MCPServerStdio:
    name: str
    params: Any
    tool_filter: Any = None
    _needs_approval_policy: Any = False


@dataclass
class MCPServerStreamableHttp:
    name: str
    params: dict[str, Any]
    _needs_approval_policy: Any = False


@dataclass
class MCPServerSse:
    name: str
    params: dict[str, Any]


class ModelHooks:
    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None: ...


@dataclass
class HostedServer:
    name: str


@dataclass
class Guardrail:
    guardrail_function: Callable[..., Any]
    name: str | None = None


@dataclass
class Handoff:
    tool_name: str
    tool_description: str
    input_json_schema: dict[str, Any]
    on_invoke_handoff: Callable[[Any, str], Awaitable[Any]]
    agent_name: str
    input_filter: Any = None
    is_enabled: Any = True
    _agent_ref: Any = None


def handoff(agent: Agent, on_handoff: Any = None, schema: Any = None, **fields: Any) -> Handoff:
    """Keeps what it is given where the SDK keeps it: around the function."""

    async def invoke(context: Any, arguments: str) -> Agent:
        if on_handoff is not None:
            on_handoff(context, arguments)
        return agent

    name = fields.pop("tool_name", f"transfer_to_{agent.name.lower()}")
    fields["_agent_ref"] = lambda: agent
    return Handoff(name, "Hand over.", schema or {}, invoke, agent.name, **fields)


def as_tool(agent: Agent, name: str, **asked: Any) -> FunctionTool:
    custom_output_extractor = asked.pop("custom_output_extractor", None)
    max_turns = asked.pop("max_turns", None)

    async def invoke(context: Any, arguments: str) -> Any:
        raise AssertionError((custom_output_extractor, max_turns))

    schema = {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    }
    return FunctionTool(
        name, "Ask it.", schema, invoke, _is_agent_tool=True, _agent_instance=agent, **asked
    )


def stdio(name: str, command: str, *, cwd: str | None = None, **fields: Any) -> MCPServerStdio:
    params = SimpleNamespace(command=command, args=["-q"], env=None, cwd=cwd)
    return MCPServerStdio(name, params, **fields)


async def told(context: Any, arguments: str) -> str:
    return f"{context.tool_name} for {context.context.user_id} with {arguments}"


def a_tool(name: str = "look", **fields: Any) -> FunctionTool:
    schema = {
        "type": "object",
        "properties": {"what": {"type": "string"}, "most": {"type": "integer", "default": 3}},
        "required": ["what", "most"],
        "additionalProperties": False,
    }
    given = {"params_json_schema": schema, "on_invoke_tool": told, **fields}
    return FunctionTool(name, "Look something up.", **given)


def an_agent(**fields: Any) -> Agent:
    return Agent("Helper", **{"instructions": "You help.", "model": "scripted/echo", **fields})
