"""An agent of the OpenAI Agents SDK as one of ours: its words and its tools, run by our engine.

The SDK is imported by the operator's own file and never by us; its objects are known by their
fields. Its runner is not used, so approvals, logs and streams are those of every agent. What an
agent asks for beyond what is taken over stops start-up: half of an agent is another agent.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from sk_agents.config.class_loader import load_object
from sk_agents.engine.turns import ToolContext, ToolResult
from sk_agents.exceptions import ConfigurationError, ModuleBroken
from sk_agents.tools.attachments import Collected, result_of
from sk_agents.tools.base_tool import Tool, ToolStream, tool_spec
from sk_agents.tools.declarations import declaration_of
from sk_agents.tools.json_schema import ArgumentSchema, UnusableSchema
from sk_agents.tools.mcp.config import McpServer
from sk_agents.tools.plugins import contained

logger = logging.getLogger(__name__)

PACKAGE = "agents"
NEEDED = "it needs the OpenAI Agents SDK, which is not installed: pip install openai-agents"
KEY = "openai_agent"
# By these an agent is known.
_MARKS = ("instructions", "model", "model_settings", "tools", "handoffs")
_TAKEN = {"name", "instructions", "model", "model_settings", "tools", "mcp_servers"}
# They say something to other agents, to the SDK's own MCP client and to `tool_choice`.
_WITHOUT_EFFECT = {"handoff_description", "mcp_config", "reset_tool_choice"}
# Fitted to the model, if only by the SDK's defaults: not wanted where another one is named.
_OF_THE_MODEL = {"reasoning", "verbosity"}
_TAKEN_SETTINGS = {"temperature", "max_tokens", "reasoning"}

# Each would have been a check or a condition, and without it the tool would be another one.
_CHECKS = ("tool_input_guardrails", "tool_output_guardrails", "allowed_callers")
_CONTEXTS = "agents.tool_context"
_LEFT_TO_THE_SDK = "_use_default_failure_error_function"

_UNCLEAN = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_NAME = 40
# Conditions that would be lost: what they hold back would be offered, or run unasked.
_CONDITIONS = (
    "tool_filter",
    "tool_meta_resolver",
    "tool_input_guardrails",
    "tool_output_guardrails",
    "message_handler",
)
_STDIO, _HTTP = "MCPServerStdio", "MCPServerStreamableHttp"
_HTTP_TAKEN = {"url", "headers"}
# Bounds and habits of the SDK's client; ours has its own.
_HTTP_WITHOUT_EFFECT = {"timeout", "sse_read_timeout", "terminate_on_close"}


def filled_block(path: Path, field: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """An agent file's block with what its `openai_agent` says; what the block says itself stays.

    Raises:
        ConfigurationError: there is no such agent, or it asks for something we do not do.
    """
    reference = given.get(KEY)
    if not isinstance(reference, str):
        return given
    place = f"{path}: {field}.{KEY}: "
    agent = _loaded(reference, path, place)
    _refuse_strays(agent, place)
    words = {**_words(agent, given, place), **_settings(agent, given, place), **given}
    return {**words, **_servers(agent, given, place)}


def load_sdk_tools(reference: str | None, *, path: Path, field: str) -> list[SdkTool]:
    """The function tools of the agent that `openai_agent` names, in its order.

    Raises:
        ConfigurationError: there is no such agent, or one of its tools cannot be used.
    """
    if reference is None:
        return []
    place = f"{path}: {field}.{KEY}: "
    agent = _loaded(reference, path, place)
    return [SdkTool(tool, agent, place) for tool in agent.tools if runs_here(tool, place)]


def _loaded(reference: str, path: Path, place: str) -> Any:
    module, colon, name = reference.rpartition(":")
    if not (colon and module and name.isidentifier()):
        raise ConfigurationError(f"{place}must be <module or file>:<name>")
    try:
        found = load_object(module, name, source=place.removesuffix(": "), folder=path.parent)
    except ModuleBroken as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and (cause.name or "").split(".")[0] == PACKAGE:
            raise ModuleBroken(f"{place}'{module}': {NEEDED}") from cause
        raise
    if isinstance(found, type) or not (
        is_dataclass(found) and all(hasattr(found, mark) for mark in _MARKS)
    ):
        raise ConfigurationError(f"{place}'{reference}' is no Agent of the OpenAI Agents SDK")
    return found


def _refuse_strays(agent: Any, place: str) -> None:
    for name in _changed(agent, _TAKEN | _WITHOUT_EFFECT):
        if name == "output_type" and agent.output_type is str:
            continue
        if name == "handoffs":
            raise ConfigurationError(
                f"{place}handoffs are not done here; serve each agent by itself"
            )
        raise ConfigurationError(f"{place}{name} is not supported here, so it must not be set")


def _words(agent: Any, given: Mapping[str, Any], place: str) -> dict[str, Any]:
    words: dict[str, Any] = {}
    if "system_prompt" not in given:
        if not isinstance(agent.instructions, str | None):
            raise ConfigurationError(
                f"{place}instructions must be text, a function is not called here; "
                "or write system_prompt beside it"
            )
        words["system_prompt"] = agent.instructions or ""
    if "model" not in given:
        if agent.model is None:
            raise ConfigurationError(f"{place}it names no model; write model beside it")
        if not isinstance(agent.model, str):
            raise ConfigurationError(
                f"{place}its model is a {type(agent.model).__name__}, which only the SDK can call; "
                "write model beside it, and base_url and api_key_env if it needs them"
            )
        words["model"] = agent.model
    return words


def _settings(agent: Any, given: Mapping[str, Any], place: str) -> dict[str, Any]:
    settings = agent.model_settings
    if getattr(settings, "tool_choice", None) not in {None, "auto"}:
        raise ConfigurationError(f"{place}model_settings.tool_choice is not supported here")
    if getattr(settings, "parallel_tool_calls", None) is False:
        raise ConfigurationError(
            f"{place}model_settings.parallel_tool_calls cannot be False: calls run side by side"
        )
    skipped = _OF_THE_MODEL if "model" in given else set()
    known = _TAKEN_SETTINGS | {"tool_choice", "parallel_tool_calls"} | skipped
    dropped = sorted(_changed(settings, known))
    if dropped:
        logger.warning("%smodel_settings have no effect here: %s", place, ", ".join(dropped))
    reasoning = None if skipped else getattr(settings, "reasoning", None)
    values = {
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "reasoning_effort": getattr(reasoning, "effort", None),
    }
    return {name: value for name, value in values.items() if value is not None}


def _servers(agent: Any, given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The file's own servers and rules come first."""
    known = [(server, server_entry(server, place)) for server in getattr(agent, "mcp_servers", ())]
    if not known:
        return {}
    entries = [entry for _, entry in known]
    rules = [rule for server, entry in known if (rule := asking_rule(server, entry))]
    approvals = given.get("approvals") or {}
    added = {"mcp_servers": [*(given.get("mcp_servers") or ()), *entries]}
    if not rules or not isinstance(approvals, Mapping):
        return added
    return {**added, "approvals": {**approvals, "rules": [*(approvals.get("rules") or ()), *rules]}}


def _changed(thing: Any, known: set[str]) -> Iterator[str]:
    """Public fields outside of `known` that have another value than by default."""
    for entry in fields(thing):
        if entry.name in known or entry.name.startswith("_"):
            continue
        factory = entry.default_factory
        default = entry.default if factory is MISSING else factory()
        if getattr(thing, entry.name) != default:
            yield entry.name


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
        with contained():
            result = self._tool.on_invoke_tool(self._context(text, context), text)
            if inspect.isawaitable(result):
                result = await result
        yield _result(result)

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
        # Its own tools would run without any approval.
        raise ConfigurationError(f"{place}tool '{name}' is another agent; serve it by itself")
    for check in _CHECKS:
        if getattr(tool, check, None):
            raise ConfigurationError(f"{place}tool '{name}': {check} is not supported here")
    enabled = getattr(tool, "is_enabled", True)
    if not isinstance(enabled, bool):
        raise ConfigurationError(f"{place}tool '{name}': is_enabled must be True or False here")
    return enabled


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


def server_entry(server: Any, place: str) -> dict[str, Any]:
    """An entry of `mcp_servers`.

    Raises:
        ConfigurationError: another transport, or something that an entry cannot say.
    """
    kind, name = type(server).__name__, str(getattr(server, "name", ""))
    place = f"{place}MCP server '{name[:100]}': "
    for condition in _CONDITIONS:
        if getattr(server, condition, None) is not None:
            raise ConfigurationError(f"{place}{condition} is not supported here")
    entry: dict[str, Any] = {"name": _UNCLEAN.sub("_", name).strip("_")[:_MOST_NAME]}
    if kind == _STDIO:
        entry |= _stdio(server.params, place)
    elif kind == _HTTP:
        entry |= _http(server.params, place)
    else:
        raise ConfigurationError(f"{place}a {kind} cannot be used here, {_STDIO} and {_HTTP} can")
    policy = _approval(server)
    if isinstance(policy, Mapping):
        asked = {str(tool): {"requires_hitl": True} for tool, needed in policy.items() if needed}
        entry["tool_governance_overrides"] = asked
    return entry


def asking_rule(server: Any, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """A rule of `approvals` for a server all of whose tools ask, or some at a function's choice."""
    policy = _approval(server)
    if not policy or isinstance(policy, Mapping):
        return None
    return {"tool": f"{McpServer.model_construct(**entry).prefix}*", "then": "ask"}


def _stdio(params: Any, place: str) -> dict[str, Any]:
    if params.cwd is not None:
        raise ConfigurationError(f"{place}cwd is not supported here: it is the agent file's folder")
    return {
        "transport": "stdio",
        "command": params.command,
        "args": list(params.args),
        "env": dict(params.env or {}),
    }


def _http(params: Mapping[str, Any], place: str) -> dict[str, Any]:
    given = {name for name, value in params.items() if value is not None}
    strays = sorted(given - _HTTP_TAKEN - _HTTP_WITHOUT_EFFECT)
    if strays:
        raise ConfigurationError(f"{place}{', '.join(strays)} is not supported here")
    return {"transport": "http", "url": params["url"], "headers": dict(params.get("headers") or {})}


def _approval(server: Any) -> Any:
    """`require_approval` as the SDK's server remembers it: yes or no, by tool, or a function."""
    return getattr(server, "_needs_approval_policy", False)
