"""One agent of the SDK as we take it over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ConfigurationError
from sk_agents.tools.agents_sdk.author_code import AuthorContexts, called
from sk_agents.tools.agents_sdk.mcp_servers import ToolFilter, prefix_of, server_entry
from sk_agents.tools.agents_sdk.output_type import OutputType
from sk_agents.tools.agents_sdk.settings import RoundSettings, changed_fields, settings_of

# By these an agent is known.
_MARKS = ("instructions", "model", "model_settings", "tools", "handoffs")
_TAKEN = {
    *("name", "instructions", "model", "model_settings", "tools", "mcp_servers", "handoffs"),
    *("output_type", "input_guardrails", "output_guardrails", "tool_use_behavior"),
    *("handoff_description", "reset_tool_choice", "hooks"),
}
# They are given what only the SDK's models return.
_UNTOLD = ("on_llm_start", "on_llm_end")
# It says something to the SDK's own MCP client.
_WITHOUT_EFFECT = {"mcp_config"}


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a conversation stands when an agent is asked: in a chat, or inside of a tool.

    `source` is the agent that has handed over in this turn.
    `results` are those of the last round's tools, by name, if all of them are the agent's own.
    """

    context: ToolContext
    said: str
    is_first: bool = True
    has_called: bool = False
    source: Any = None
    results: Sequence[tuple[str, str]] = ()


class Member:
    """One agent of a team. `servers` are its MCP servers: how their tools begin, and which pass."""

    def __init__(self, agent: Any, place: str, contexts: AuthorContexts) -> None:
        """Raises ConfigurationError: it asks for something we do not do."""
        _refuse_strays(agent, place)
        self.agent, self.contexts = agent, contexts
        self.place = place
        self.settings: RoundSettings = settings_of(agent.model_settings, place)
        self.stops_at = _stops_at(agent, place)
        self.hooks: Any = getattr(agent, "hooks", None)
        for name in _UNTOLD:
            if self.hooks is not None and _is_own(self.hooks, name):
                raise ConfigurationError(f"{place}hooks: {name} is not called here")
        wanted = getattr(agent, "output_type", None)
        is_plain = getattr(wanted, "is_plain_text", None)
        is_text = wanted in (None, str)
        if callable(is_plain) and not isinstance(wanted, type):
            is_text = bool(is_plain())
        self.output = None if is_text else OutputType(wanted, place)
        self.tools: list[Any] = []
        self.servers: dict[str, ToolFilter] = {
            prefix_of(server_entry(server, place)): ToolFilter.of(server, place)
            for server in getattr(agent, "mcp_servers", ())
        }

    async def tell(self, event: str, context: Any, *more: Any) -> None:
        """Call the hook of this name, if there is one. Raises AgentCodeFailed."""
        hook = getattr(self.hooks, event, None)
        if hook is not None:
            what = f"{event} of the hooks of agent '{self.agent.name}'"
            await called(what, hook, context, self.agent, *more)

    @property
    def is_plain(self) -> bool:
        """Whether all of its rounds are alike."""
        agent = self.agent
        return not (
            callable(agent.instructions)
            or self.output is not None
            or self.stops_at is not None
            or self.hooks is not None
            or self.settings.tool_choice is not None
            or self.settings.parallel_tool_calls is not None
            or getattr(agent, "input_guardrails", None)
            or getattr(agent, "output_guardrails", None)
            or any(server != ToolFilter() for server in self.servers.values())
            or any(map(_is_conditional, self.tools))
        )


def _is_conditional(tool: Any) -> bool:
    """Whether it is not always offered, or may end the run."""
    source = tool.source
    checks = ("tool_input_guardrails", "tool_output_guardrails")
    return callable(tool.is_enabled) or any(getattr(source, check, None) for check in checks)


def _is_own(hooks: Any, name: str) -> bool:
    """Whether the author has written it, and not the SDK, where it does nothing."""
    for kind in type(hooks).__mro__:
        if name in vars(kind):
            return kind.__module__.split(".")[0] != "agents"
    return False


def is_agent(found: Any) -> bool:
    """Whether it has what an `Agent` of the SDK is known by."""
    is_object = is_dataclass(found) and not isinstance(found, type)
    return is_object and all(hasattr(found, mark) for mark in _MARKS)


def _refuse_strays(agent: Any, place: str) -> None:
    if hasattr(agent, "capabilities"):
        kind = type(agent).__name__
        raise ConfigurationError(f"{place}a {kind} works in a sandbox of the SDK, not here")
    for name in changed_fields(agent, _TAKEN | _WITHOUT_EFFECT):
        raise ConfigurationError(f"{place}{name} is not supported here, so it must not be set")
    for name in ("input_guardrails", "output_guardrails"):
        for guardrail in getattr(agent, name, None) or ():
            if not callable(getattr(guardrail, "guardrail_function", None)):
                kind = type(guardrail).__name__
                raise ConfigurationError(f"{place}{name}: a {kind} is no guardrail of the SDK")


def _stops_at(agent: Any, place: str) -> frozenset[str] | None:
    """The tools whose result is the answer: an empty set stands for all, `None` for none."""
    behavior = getattr(agent, "tool_use_behavior", "run_llm_again")
    if behavior == "run_llm_again":
        return None
    if behavior == "stop_on_first_tool":
        return frozenset()
    if isinstance(behavior, Mapping) and behavior.get("stop_at_tool_names"):
        return frozenset(behavior["stop_at_tool_names"])
    raise ConfigurationError(f"{place}a tool_use_behavior that is a function is not called here")
