"""From `openai_agent` in an agent file to the words, settings and tools of a team of agents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sk_agents.config.class_loader import load_object
from sk_agents.exceptions import ConfigurationError, ModuleBroken
from sk_agents.tools.agents_sdk.author_code import AuthorContexts
from sk_agents.tools.agents_sdk.mcp_servers import asking_rule, server_entry
from sk_agents.tools.agents_sdk.member import is_agent
from sk_agents.tools.agents_sdk.settings import report_dropped
from sk_agents.tools.agents_sdk.team import Team

PACKAGE = "agents"
NEEDED = "it needs the OpenAI Agents SDK, which is not installed: pip install openai-agents"
KEY = "openai_agent"


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
    team = Team(agent, place)
    for member in team.members:
        own_model = "model" not in given
        report_dropped(member.agent.model_settings, member.place, has_own_model=own_model)
    words = {**_words(agent, given, place), **_settings(team, given), **given}
    return {**words, **_servers(team, given)}


def load_team(reference: str, context: str | None = None, *, path: Path, field: str) -> Team:
    """The agent that `openai_agent` names, with those it hands over to and has as tools.

    `context` names the function that makes what their functions get as `context.context`.

    Raises:
        ConfigurationError: there is no such agent, or one of its tools cannot be used.
    """
    make: Any = None
    if context is not None:
        place = f"{path}: {field}.openai_context: "
        make = _named(context, path, place)
        if not callable(make):
            raise ConfigurationError(f"{place}'{context}' is no function and no class")
    place = f"{path}: {field}.{KEY}: "
    return Team(_loaded(reference, path, place), place, AuthorContexts(make))


def _loaded(reference: str, path: Path, place: str) -> Any:
    found = _named(reference, path, place)
    if not is_agent(found):
        raise ConfigurationError(f"{place}'{reference}' is no Agent of the OpenAI Agents SDK")
    return found


def _named(reference: str, path: Path, place: str) -> Any:
    module, colon, name = reference.rpartition(":")
    if not (colon and module and name.isidentifier()):
        raise ConfigurationError(f"{place}must be <module or file>:<name>")
    try:
        return load_object(module, name, source=place.removesuffix(": "), folder=path.parent)
    except ModuleBroken as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and (cause.name or "").split(".")[0] == PACKAGE:
            raise ModuleBroken(f"{place}'{module}': {NEEDED}") from cause
        raise


def _words(agent: Any, given: Mapping[str, Any], place: str) -> dict[str, Any]:
    words: dict[str, Any] = {}
    if "system_prompt" not in given:
        # A function is called before each round.
        text = agent.instructions if isinstance(agent.instructions, str) else ""
        words["system_prompt"] = text
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


def _settings(team: Team, given: Mapping[str, Any]) -> dict[str, Any]:
    settings = team.first.settings
    values = {
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "reasoning_effort": None if "model" in given else settings.reasoning_effort,
        **settings.client,
    }
    return {name: value for name, value in values.items() if value is not None}


def _servers(team: Team, given: Mapping[str, Any]) -> dict[str, Any]:
    """The file's own servers and rules come first."""
    servers = {
        id(server): (server, server_entry(server, member.place))
        for member in team.members
        for server in getattr(member.agent, "mcp_servers", ())
    }
    if not servers:
        return {}
    entries = [entry for _, entry in servers.values()]
    rules = [rule for server, entry in servers.values() if (rule := asking_rule(server, entry))]
    approvals = given.get("approvals") or {}
    added = {"mcp_servers": [*(given.get("mcp_servers") or ()), *entries]}
    if not rules or not isinstance(approvals, Mapping):
        return added
    return {**added, "approvals": {**approvals, "rules": [*(approvals.get("rules") or ()), *rules]}}
