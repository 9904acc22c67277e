"""From the calls a model asks for to proposals in the log: parsed, checked, numbered by us.

A model spells the arguments of a call as text, which is not trusted before it was parsed.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from sk_agents.engine.agent import Agent
from sk_agents.engine.events import ToolProposed
from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.models import Effect, ToolCall
from sk_agents.engine.ports import Ids
from sk_agents.engine.run.rounds import Reply
from sk_agents.engine.run.vault import checked
from sk_agents.engine.turns import CallRequested, ToolSpec
from sk_agents.exceptions import InvalidInput, ToolError

MAX_ARGUMENT_BYTES = 64 * 1024
MAX_ARGUMENT_DEPTH = 64
# What every provider takes back as the name of a tool.
MAX_NAME = 64
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True)
class Room:
    """How many calls of a round may run, and what the model reads about the others."""

    calls: int
    problem: str


def proposals(
    reply: Reply,
    agent: Agent,
    ids: Ids,
    *,
    room: Room,
    question: str | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Iterator[ToolProposed]:
    """One proposal a call; what cannot run says why, for the model to read.

    The first one that can run asks `question`, if there is one. `secrets` is what placeholders
    stand for: a call is checked as it will run, and proposed as the model has written it.
    """
    limits = agent.limits
    plan = reply.plan or agent.plan
    specs = {
        spec.name: spec
        for spec in agent.toolbox.specs()
        if plan.offered is None or spec.name in plan.offered
    }
    seen: set[str] = set()
    has_left = False
    for position, wanted in enumerate(reply.calls):
        problem = None
        if position >= limits.calls_per_round:
            problem = f"Too many calls at once: the limit is {limits.calls_per_round}."
        elif position >= room.calls:
            problem = room.problem
        elif wanted.provider_id and wanted.provider_id in seen:
            problem = "This call repeats the id of another one."
        elif position and plan.parallel_tool_calls is False:
            problem = "One call at a time. Make this one again once the first has its result."
        elif wanted.name in plan.exclusive:
            problem = "Another call of this round has done that already." if has_left else None
            has_left = True
        seen.add(wanted.provider_id)
        call_id = f"call_{ids.new()}"
        proposal = _proposal(reply, agent, specs, wanted, call_id, problem, secrets or {})
        if question is not None and proposal.problem is None:
            proposal = proposal.model_copy(update={"budget": question, "gated": True})
            question = None
        # The tokens of a round are counted with its first call.
        yield proposal.model_copy(update=_of_round(reply)) if position == 0 else proposal


def _of_round(reply: Reply) -> dict[str, Any]:
    state = None if reply.state is None else dict(reply.state)
    return {"usage": reply.usage, "reasoning_state": state}


def _proposal(
    reply: Reply,
    agent: Agent,
    specs: Mapping[str, ToolSpec],
    wanted: CallRequested,
    call_id: str,
    problem: str | None,
    secrets: Mapping[str, str],
) -> ToolProposed:
    spec = specs.get(wanted.name)
    plugin, _, function = _name(wanted.name, spec).rpartition("-")

    def call_with(arguments: dict[str, Any]) -> ToolCall:
        return ToolCall(id=call_id, plugin_name=plugin, function_name=function, arguments=arguments)

    call = true_call = None
    try:
        if problem is not None:
            raise ToolError(problem)
        if spec is None:
            raise ToolError(_unknown(agent, wanted.name[:MAX_NAME]))
        call = call_with(parse_arguments(wanted.arguments))
        call, true_call = checked(agent.redaction, agent.toolbox, call, secrets)
    except ToolError as error:
        call = call or call_with({})
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
        gated=spec is not None and agent.policy.verdict(true_call or call, spec) != "allow",
        problem=problem,
    )


def _unknown(agent: Agent, name: str) -> str:
    """In the toolbox's own words, which may name what was meant."""
    if any(spec.name == name for spec in agent.toolbox.specs()):
        return f"The tool {ascii(name)} is not offered now."
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


def parse_arguments(text: str) -> dict[str, Any]:
    """The JSON object in `text`; nothing at all counts as an empty one.

    Raises:
        ToolError: anything else. The text tells the model what to send instead.
    """
    if (
        len(text) > MAX_ARGUMENT_BYTES
        or len(text.encode(errors="surrogatepass")) > MAX_ARGUMENT_BYTES
    ):
        raise ToolError(f"The arguments are larger than {MAX_ARGUMENT_BYTES} bytes. Send less.")
    if not text.strip():
        return {}
    _refuse_deep_nesting(text)
    try:
        value = _DECODER.decode(text)
        canonical_json(value)
    except (ValueError, InvalidInput) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise ToolError(f"The arguments are not valid JSON: {reason}. Send one object.") from None
    if not isinstance(value, dict):
        raise ToolError("The arguments must be one JSON object with the arguments by name.")
    return value


def _refuse_deep_nesting(text: str) -> None:
    """Look at the brackets first: reading nested values recurses."""
    if text.count("[") + text.count("{") <= MAX_ARGUMENT_DEPTH:
        return
    depth = 0
    for character in _STRING.sub("", text):
        if character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        if depth > MAX_ARGUMENT_DEPTH:
            raise ToolError(
                f"The arguments are nested more than {MAX_ARGUMENT_DEPTH} deep. Send less."
            )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"key {ascii(repeated[:64])} appears twice")
    return result


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_number
)
