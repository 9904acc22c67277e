"""An agent of the OpenAI Agents SDK as one of ours: its words and its tools, run by our engine.

The SDK is imported by the operator's own file and never by us; its objects are known by their
fields. Its runner is not used, so approvals, logs and streams are those of every agent. What an
agent asks for beyond what is taken over stops start-up: half of an agent is another agent.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from sk_agents.config.class_loader import load_object
from sk_agents.exceptions import ConfigurationError, ModuleBroken
from sk_agents.tools.agents_sdk.mcp import asking_rule, server_entry
from sk_agents.tools.agents_sdk.tool import SdkTool, runs_here

logger = logging.getLogger(__name__)

PACKAGE = "agents"
NEEDED = "it needs the OpenAI Agents SDK, which is not installed: pip install openai-agents"
KEY = "openai_agent"
# By these an agent is known.
_MARKS = ("instructions", "model", "model_settings", "tools", "handoffs")
_TAKEN = {"name", "instructions", "model", "model_settings", "tools", "mcp_servers"}
# They say something to other agents, to the SDK's own MCP client and to `tool_choice`.
_WITHOUT_EFFECT = {"handoff_description", "mcp_config", "reset_tool_choice"}
# Fitted to the model, if only by the SDK's defaults: who names another one does not want them.
_OF_THE_MODEL = {"reasoning", "verbosity"}
_TAKEN_SETTINGS = {"temperature", "max_tokens", "reasoning"}


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
