"""Function tools of the SDK, with the checks that their authors put before and after them."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from sk_agents.engine.turns import ToolContext, ToolResult
from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.agents_sdk.author_code import called, own_kind
from sk_agents.tools.agents_sdk.member import Member
from sk_agents.tools.attachments import Collected, result_of
from sk_agents.tools.base_tool import Tool, ToolStream, tool_spec
from sk_agents.tools.declarations import declaration_of
from sk_agents.tools.json_schema import ArgumentSchema, UnusableSchema
from sk_agents.tools.plugins import contained

# What a tool's guardrail leaves in the log when it wants the run to end.
TRIPPED = "guardrail_tripped"
# Each would have been a condition, and without it the tool would be another one.
_CONDITIONS = ("allowed_callers", "defer_loading")
_CONTEXTS = "agents.tool_context"
_GUARDRAILS = "agents.tool_guardrails"
_LEFT_TO_THE_SDK = "_use_default_failure_error_function"


class SdkTool(Tool):
    """`@tool` above `@function_tool` says what a second execution would do.

    Where `needs_approval` is a function, every call is asked about: it would be given a context
    that there is not.
    """

    def __init__(self, tool: Any, member: Member, place: str) -> None:
        """`member` is the agent it belongs to, the first one if there are several."""
        self.source, self.is_enabled = tool, getattr(tool, "is_enabled", True)
        self.origin = f"{place}tool '{tool.name}'"
        declaration = declaration_of(tool)
        needed = getattr(tool, "needs_approval", False) is not False
        self.requires_approval = True if needed else declaration.requires_approval
        self._tool, self.member = _failing_openly(tool), member
        try:
            self._arguments = ArgumentSchema(tool.params_json_schema)
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

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        text = json.dumps(arguments, ensure_ascii=False)
        given = self._context(text, context, await self.member.contexts.of(context))
        stopped = await self._stopped("tool_input_guardrails", "ToolInputGuardrailData", given)
        if stopped is not None:
            yield stopped
            return
        await self.member.tell("on_tool_start", given, self.source)
        with contained():
            result = self._tool.on_invoke_tool(given, text)
            if inspect.isawaitable(result):
                result = await result
        await self.member.tell("on_tool_end", given, self.source, result)
        stopped = await self._stopped(
            "tool_output_guardrails", "ToolOutputGuardrailData", given, output=result
        )
        yield stopped or _result(result)

    async def _stopped(self, field: str, kind: str, context: Any, **more: Any) -> ToolResult | None:
        """What the first guardrail that does not let the call pass puts in its result's place.

        Raises:
            AgentCodeFailed: one of them fails; the call has failed with it.
        """
        for guardrail in getattr(self._tool, field, None) or ():
            name = guardrail_name(guardrail)
            data = (own_kind(_GUARDRAILS, kind) or SimpleNamespace)(
                context=context, agent=self.member.agent, **more
            )
            what = f"The guardrail '{name}' of tool '{self.spec.name}'"
            found = await called(what, guardrail.guardrail_function, data)
            behavior = getattr(found, "behavior", None) or {}
            match behavior.get("type"):
                case "allow":
                    continue
                case "reject_content":
                    return ToolResult(str(behavior.get("message", "")))
                case _:
                    # Also what is not understood: it was not allowed.
                    return ToolResult(f"{what} stopped it.", extra_data={TRIPPED: what})
        return None

    def _context(self, arguments: str, context: ToolContext, own: Any) -> Any:
        """The SDK's own kind where its author's file has imported it."""
        kind = getattr(sys.modules.get(_CONTEXTS), "ToolContext", CallContext)
        known = inspect.signature(kind).parameters
        given = {
            "context": own,
            "tool_name": self.spec.name,
            "tool_call_id": context.call_id,
            "tool_arguments": arguments,
            "agent": self.member.agent,
        }
        return kind(**{name: value for name, value in given.items() if name in known})


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a tool is given that was made without the SDK."""

    context: Any
    tool_name: str
    tool_call_id: str
    tool_arguments: str


def guardrail_name(guardrail: Any) -> str:
    function = getattr(guardrail, "guardrail_function", None)
    return str(getattr(guardrail, "name", None) or getattr(function, "__name__", "unnamed"))[:100]


def refuse_unusable(tool: Any, place: str) -> None:
    """Return iff it is a tool that runs here.

    Raises:
        ConfigurationError: it runs somewhere else, or has conditions that are not kept here.
    """
    kind, name = type(tool).__name__, getattr(tool, "name", "")
    if not (hasattr(tool, "on_invoke_tool") and hasattr(tool, "params_json_schema")):
        raise ConfigurationError(f"{place}a {kind} does not run here; function tools do")
    for condition in _CONDITIONS:
        if getattr(tool, condition, None):
            raise ConfigurationError(f"{place}tool '{name}': {condition} is not supported here")


def _failing_openly(tool: Any) -> Any:
    """Where the author left errors to the SDK's default, they are left to our engine.

    The SDK would call the failure a result; some of its versions put the exception's text into it.
    """
    if not getattr(tool, _LEFT_TO_THE_SDK, False):
        return tool
    own = copy(tool)
    setattr(own, _LEFT_TO_THE_SDK, False)
    return own


def _result(result: Any) -> ToolResult:
    """The SDK's texts, images and files, one or several; everything else as any tool's."""
    several = result if isinstance(result, list | tuple) and result else [result]
    found = Collected()
    for one in several:
        text = _output(one, found)
        if text is None:
            return result_of(result)
        found.texts.append(text)
    return found.result()


def _output(one: Any, found: Collected) -> str | None:
    """An output of the SDK as text; `None` if it is none."""

    def text_field(name: str) -> str | None:
        value = _field(one, name)
        return value if isinstance(value, str) and value else None

    match _field(one, "type"):
        case "text":
            text = _field(one, "text")
            return text if isinstance(text, str) else None
        case "image":
            if (address := text_field("image_url")) is not None:
                return found.add_address(address, None, None)
        case "file":
            name = text_field("filename")
            if (data := text_field("file_data")) is not None:
                is_uri = data.startswith("data:")
                return (found.add_address if is_uri else found.add_base64)(data, None, name)
            if (address := text_field("file_url")) is not None:
                return found.add_link(address, None, name)
        case _:
            return None
    file_id = text_field("file_id")
    return f"[file {file_id}, kept by OpenAI]" if file_id is not None else None


def _field(one: Any, name: str) -> Any:
    return one.get(name) if isinstance(one, Mapping) else getattr(one, name, None)
