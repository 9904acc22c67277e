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
    tool_choice: str | None = None
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
    _is_agent_tool: bool = False


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
    output_type: Any = None
    hooks: Any = None
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
