"""From the calls a model asks for to proposals in the log: parsed, checked, numbered by us."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sk_agents.engine.agent import Agent
from sk_agents.engine.calls.arguments import parse_arguments
from sk_agents.engine.events import ToolProposed
from sk_agents.engine.models import Effect, ToolCall
from sk_agents.engine.ports import Ids
from sk_agents.engine.run.rounds import Reply
from sk_agents.engine.turns import CallRequested, ToolSpec
from sk_agents.exceptions import ToolError

# What every provider takes back as the name of a tool.
MAX_NAME = 64
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


def proposals(reply: Reply, agent: Agent, ids: Ids) -> Iterator[ToolProposed]:
    """One proposal a call; what cannot run says why, for the model to read."""
    limits = agent.limits
    specs = {spec.name: spec for spec in agent.toolbox.specs()}
    seen: set[str] = set()
    for position, wanted in enumerate(reply.calls):
        problem = None
        if position >= limits.calls_per_round:
            problem = f"Too many calls at once: the limit is {limits.calls_per_round}."
        elif wanted.provider_id and wanted.provider_id in seen:
            problem = "This call repeats the id of another one."
        seen.add(wanted.provider_id)
        usage = reply.usage if position == 0 else None
        call_id = f"call_{ids.new()}"
        yield _proposal(reply, agent, specs, wanted, call_id, problem).model_copy(
            update={"usage": usage}
        )


def _proposal(
    reply: Reply,
    agent: Agent,
    specs: Mapping[str, ToolSpec],
    wanted: CallRequested,
    call_id: str,
    problem: str | None,
) -> ToolProposed:
    spec = specs.get(wanted.name)
    plugin, _, function = _name(wanted.name, spec).rpartition("-")
    call = ToolCall(id=call_id, plugin_name=plugin, function_name=function, arguments={})
    try:
        if problem is not None:
            raise ToolError(problem)
        if spec is None:
            raise ToolError(_unknown(agent, wanted.name[:MAX_NAME]))
        call = call.model_copy(update={"arguments": parse_arguments(wanted.arguments)})
        call = call.model_copy(update={"arguments": dict(agent.toolbox.check(call))})
    except ToolError as error:
        problem = str(error)
    return ToolProposed(
        run_id=reply.run_id,
        round=reply.round,
        call_id=call_id,
        plugin_name=plugin,
        function_name=function,
        arguments=call.arguments,
        effect=spec.effect if spec else Effect.AT_MOST_ONCE,
        definition_digest=spec.definition_digest if spec else "",
        gated=spec is not None and agent.policy.verdict(call, spec) != "allow",
        problem=problem,
    )


def _unknown(agent: Agent, name: str) -> str:
    """In the toolbox's own words, which may name what was meant."""
    try:
        agent.toolbox.check(ToolCall(id="", plugin_name="", function_name=name, arguments={}))
    except ToolError as error:
        return str(error)
    return f"There is no tool named {ascii(name)}."


def _name(name: str, spec: ToolSpec | None) -> str:
    """The tool's name; of an unknown one something like it that can stand in a prompt."""
    if spec is not None:
        return name
    return _FOREIGN.sub("_", name)[:MAX_NAME].strip("-") or "unnamed"
