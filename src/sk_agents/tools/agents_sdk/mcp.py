"""An MCP server as an agent of the OpenAI Agents SDK names it, in the words of an agent file.

The server is reached by our own client: its definitions are pinned and its tools are asked about
like those of every server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.mcp.config import McpServer

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
    return {
        "transport": "http",
        "url": params["url"],
        "headers": dict(params.get("headers") or {}),
    }


def _approval(server: Any) -> Any:
    """`require_approval` as the SDK's server remembers it: yes or no, by tool, or a function."""
    return getattr(server, "_needs_approval_policy", False)
