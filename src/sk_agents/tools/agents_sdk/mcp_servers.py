"""MCP servers of the SDK as entries of an agent file's `mcp_servers`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.mcp.config import McpServer

_UNCLEAN = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_NAME = 40
# Conditions that would be lost: what they hold back would be offered, or run unasked.
_CONDITIONS = (
    "tool_meta_resolver",
    "tool_input_guardrails",
    "tool_output_guardrails",
    "message_handler",
)
_STDIO, _HTTP, _SSE = "MCPServerStdio", "MCPServerStreamableHttp", "MCPServerSse"
_HTTP_TAKEN = {"url", "headers"}
# Bounds and habits of the SDK's client; ours has its own.
_HTTP_WITHOUT_EFFECT = {"timeout", "sse_read_timeout", "terminate_on_close"}


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Which of a server's tools its agent may use, by the names that the server gives them."""

    allowed: frozenset[str] | None = None
    blocked: frozenset[str] = frozenset()

    @classmethod
    def of(cls, server: Any, place: str) -> ToolFilter:
        """Raises ConfigurationError: a filter that is a function."""
        given = getattr(server, "tool_filter", None)
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"{place}a tool_filter that is a function is not called here")
        allowed = given.get("allowed_tool_names")
        return cls(
            frozenset(allowed) if allowed is not None else None,
            frozenset(given.get("blocked_tool_names") or ()),
        )

    def lets_pass(self, name: str) -> bool:
        return name not in self.blocked and (self.allowed is None or name in self.allowed)


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
    ToolFilter.of(server, place)
    entry: dict[str, Any] = {"name": _UNCLEAN.sub("_", name).strip("_")[:_MOST_NAME]}
    if kind == _STDIO:
        entry |= _stdio(server.params)
    elif kind in (_HTTP, _SSE):
        entry |= _http(server.params, "http" if kind == _HTTP else "sse", place)
    else:
        known = f"{_STDIO}, {_HTTP} and {_SSE}"
        raise ConfigurationError(f"{place}a {kind} cannot be used here, {known} can")
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
    return {"tool": f"{prefix_of(entry)}*", "then": "ask"}


def prefix_of(entry: Mapping[str, Any]) -> str:
    """How the names of its tools begin."""
    return McpServer.model_construct(**entry).prefix


def _stdio(params: Any) -> dict[str, Any]:
    cwd = {"cwd": str(params.cwd)} if params.cwd is not None else {}
    return {
        "transport": "stdio",
        "command": params.command,
        "args": list(params.args),
        "env": dict(params.env or {}),
        **cwd,
    }


def _http(params: Mapping[str, Any], transport: str, place: str) -> dict[str, Any]:
    given = {name for name, value in params.items() if value is not None}
    strays = sorted(given - _HTTP_TAKEN - _HTTP_WITHOUT_EFFECT)
    if strays:
        raise ConfigurationError(f"{place}{', '.join(strays)} is not supported here")
    headers = dict(params.get("headers") or {})
    return {"transport": transport, "url": params["url"], "headers": headers}


def _approval(server: Any) -> Any:
    """`require_approval` as the SDK's server remembers it: yes or no, by tool, or a function."""
    return getattr(server, "_needs_approval_policy", False)
