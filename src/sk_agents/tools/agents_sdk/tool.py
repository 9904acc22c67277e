"""A function tool of the OpenAI Agents SDK behind our own seam."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult
from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.declarations import declaration_of
from sk_agents.tools.mcp.schema import Arguments, UnusableSchema
from sk_agents.tools.member import Tool, tool_spec
from sk_agents.tools.plugins import contained
from sk_agents.tools.results import text_of

# Each would have been a check or a condition, and without it the tool would be another one.
_CHECKS = ("tool_input_guardrails", "tool_output_guardrails", "allowed_callers")
_CONTEXTS = "agents.tool_context"
_LEFT_TO_THE_SDK = "_use_default_failure_error_function"


class SdkTool(Tool):
    """`@tool` above `@function_tool` says what a second execution would do.

    Where `needs_approval` is a function, every call is asked about: it would be given a context
    that there is not.
    """

    def __init__(self, tool: Any, agent: Any, place: str) -> None:
        self.origin = f"{place}tool '{tool.name}'"
        declaration = declaration_of(tool)
        needed = getattr(tool, "needs_approval", False) is not False
        self.requires_approval = True if needed else declaration.requires_approval
        self._tool, self._agent = _failing_openly(tool), agent
        try:
            self._arguments = Arguments(tool.params_json_schema)
        except UnusableSchema as error:
            raise ConfigurationError(f"{self.origin}: its schema is unusable: {error}") from None
        self.spec = tool_spec(
            name=tool.name,
            description=tool.description or "",
            parameters=self._arguments.schema,
            origin=self.origin,
            effect=declaration.effect,
            timeout=getattr(tool, "timeout_seconds", None) or declaration.timeout,
        )

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._arguments.check(arguments)

    async def run(
        self, arguments: dict[str, Any], context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult]:
        text = json.dumps(arguments, ensure_ascii=False)
        with contained():
            result = self._tool.on_invoke_tool(self._context(text, context), text)
            if inspect.isawaitable(result):
                result = await result
        yield ToolResult(_text(result))

    def _context(self, arguments: str, context: ToolContext) -> Any:
        """The SDK's own kind where its author's file has imported it; `context.context` is ours."""
        kind = getattr(sys.modules.get(_CONTEXTS), "ToolContext", CallContext)
        known = inspect.signature(kind).parameters
        given = {
            "context": context,
            "tool_name": self.spec.name,
            "tool_call_id": context.call_id,
            "tool_arguments": arguments,
            "agent": self._agent,
        }
        return kind(**{name: value for name, value in given.items() if name in known})


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a tool is given that was made without the SDK."""

    context: ToolContext
    tool_name: str
    tool_call_id: str
    tool_arguments: str


def runs_here(tool: Any, place: str) -> bool:
    """Whether an agent's tool is one that runs here, and is switched on.

    Raises:
        ConfigurationError: it runs somewhere else, or has conditions that are not kept here.
    """
    kind, name = type(tool).__name__, getattr(tool, "name", "")
    if not (hasattr(tool, "on_invoke_tool") and hasattr(tool, "params_json_schema")):
        raise ConfigurationError(f"{place}a {kind} does not run here; function tools do")
    if getattr(tool, "_is_agent_tool", False):
        # Its own tools would run without anybody being asked.
        raise ConfigurationError(f"{place}tool '{name}' is another agent; serve it by itself")
    for check in _CHECKS:
        if getattr(tool, check, None):
            raise ConfigurationError(f"{place}tool '{name}': {check} is not supported here")
    enabled = getattr(tool, "is_enabled", True)
    if not isinstance(enabled, bool):
        raise ConfigurationError(f"{place}tool '{name}': is_enabled must be True or False here")
    return enabled


def _failing_openly(tool: Any) -> Any:
    """A tool whose author left it to the SDK what the model hears of an error leaves it to us.

    The SDK would call the failure a result; some of its versions put the exception's text into it.
    """
    if not getattr(tool, _LEFT_TO_THE_SDK, False):
        return tool
    own = copy(tool)
    setattr(own, _LEFT_TO_THE_SDK, False)
    return own


def _text(result: Any) -> str:
    """The SDK's text outputs as their text, one or several; everything else as any tool's."""
    several = result if isinstance(result, list | tuple) and result else [result]
    texts = [_field(one, "text") for one in several if _field(one, "type") == "text"]
    if len(texts) == len(several) and all(isinstance(text, str) for text in texts):
        return "\n".join(texts)
    return text_of(result)


def _field(one: Any, name: str) -> Any:
    return one.get(name) if isinstance(one, Mapping) else getattr(one, name, None)
