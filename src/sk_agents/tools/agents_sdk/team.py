"""An agent with those it hands over to and those it has as tools: who speaks, and how.

Which of them speaks is a function of the log: the one to whom the last handoff of the visible
branch went that has a result, else the first. It is asked before every round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sk_agents.engine.calls.call import Call
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import Effect, Message
from sk_agents.engine.ports import Model, Policy, RoundPlan, Scene
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ConfigurationError, GuardrailTripped
from sk_agents.tools.agents_sdk.agent_tools import AgentTool
from sk_agents.tools.agents_sdk.author_code import AuthorContexts, called
from sk_agents.tools.agents_sdk.function_tools import (
    TRIPPED,
    SdkTool,
    guardrail_name,
    refuse_unusable,
)
from sk_agents.tools.agents_sdk.handoffs import HandoffTool
from sk_agents.tools.agents_sdk.member import Member, Moment
from sk_agents.tools.base_tool import Tool
from sk_agents.tools.toolbox import AgentToolbox

ModelOf = Callable[[Member], Model]
TeamTool = SdkTool | HandoffTool | AgentTool
T = TypeVar("T", SdkTool, HandoffTool, AgentTool)


class Team:
    """The director of its agent's rounds, and the tools of all its members.

    `bind` gives it what is made later than the tools.
    """

    def __init__(self, agent: Any, place: str, contexts: AuthorContexts | None = None) -> None:
        """Raises ConfigurationError: an agent asks for something we do not do."""
        self._members: dict[int, Member] = {}
        self._tools: dict[str, TeamTool] = {}
        self._place, self._contexts = place, contexts or AuthorContexts()
        self._unfinished: set[int] = set()
        self.first = self._added(agent)
        self._plans: dict[int, RoundPlan] = {}
        self._toolbox: AgentToolbox
        self._policy: Policy

    @property
    def members(self) -> Sequence[Member]:
        return list(self._members.values())

    @property
    def tools(self) -> Sequence[Tool]:
        return list(self._tools.values())

    @property
    def has_agent_tools(self) -> bool:
        return any(isinstance(tool, AgentTool) for tool in self._tools.values())

    @property
    def needs_direction(self) -> bool:
        return len(self._members) > 1 or not self.first.is_plain

    def bind(
        self, plan: RoundPlan, toolbox: AgentToolbox, policy: Policy, model_of: ModelOf
    ) -> None:
        """`plan` is that of the first agent as its file describes it."""
        self._toolbox, self._policy = toolbox, policy
        for member in self.members:
            settings = member.settings
            if member is self.first:
                own = plan
            else:
                text = member.agent.instructions
                own = RoundPlan(
                    model_of(member),
                    instructions=_instructions(text if isinstance(text, str) else ""),
                    temperature=settings.temperature,
                    max_tokens=settings.max_tokens,
                    reasoning_effort=settings.reasoning_effort,
                )
            self._plans[id(member.agent)] = replace(
                own,
                response_schema=member.output.schema if member.output is not None else None,
                parallel_tool_calls=settings.parallel_tool_calls,
                is_held=bool(getattr(member.agent, "output_guardrails", None)),
            )

    def _added(self, agent: Any) -> Member:
        known = self._members.get(id(agent))
        if known is not None:
            return known
        is_first = not self._members
        place = self._place if is_first else f"{self._place}agent '{str(agent.name)[:100]}': "
        member = self._members[id(agent)] = Member(agent, place, self._contexts)
        self._unfinished.add(id(agent))
        for tool in agent.tools:
            refuse_unusable(tool, place)
            if getattr(tool, "is_enabled", True) is not False:
                member.tools.append(self._tool(tool, member))
        for given in getattr(agent, "handoffs", ()):
            handoff = self._shared(HandoffTool(given, place, self._contexts))
            self._added(handoff.target)
            member.tools.append(handoff)
        self._unfinished.discard(id(agent))
        return member

    def _tool(self, tool: Any, member: Member) -> TeamTool:
        if not getattr(tool, "_is_agent_tool", False):
            made = self._shared(SdkTool(tool, member, member.place))
            if made.member is not member and (made.member.hooks or member.hooks):
                raise ConfigurationError(
                    f"{member.place}tool '{tool.name}' is shared by two agents, so neither of them "
                    "can have hooks here"
                )
            return made
        agent = AgentTool.agent_of(tool, member.place)
        nested = self._added(agent)
        only_reads = self._only_reads(nested)
        return self._shared(AgentTool(tool, nested, self, member.place, only_reads=only_reads))

    def _only_reads(self, member: Member) -> bool:
        """One that is still being added may yet get tools that do more, and so may those that it
        hands over to."""
        if id(member.agent) in self._unfinished or member.servers:
            return False
        return not any(
            isinstance(tool, HandoffTool) or tool.spec.effect is not Effect.READ_ONLY
            for tool in member.tools
        )

    def _shared(self, made: T) -> T:
        """The tool of this name, if it is the same one. Raises ConfigurationError: it is not."""
        first = self._tools.setdefault(made.spec.name, made)
        if isinstance(first, type(made)) and _are_same(first, made):
            return first
        raise ConfigurationError(
            f"{made.origin}: tool '{made.spec.name}' is also defined by {first.origin}"
        )

    async def plan(self, scene: Scene) -> RoundPlan:
        run = scene.run
        context = ToolContext(scene.thread_id, run.run_id, "", scene.user_id, run.run_id)
        _refuse_tripped(run)
        handoffs = self._handoffs(scene.state, run)
        member = self.first
        if handoffs:
            member = self._members[id(handoffs[-1][1].target)]
        since = _calls_since(run, handoffs[-1][0] if handoffs else None)
        source = None
        if handoffs and handoffs[-1][0].proposal.call_id in run.calls:
            source = handoffs[-2][1].target if len(handoffs) > 1 else self.first.agent
        steered = _steered(run)
        moment = Moment(
            context,
            said="\n".join(steered) if steered and run.calls else _user_text(run),
            is_first=not run.calls or bool(steered),
            has_called=bool(since),
            source=source,
            # What was said since is for the model to answer.
            results=[] if steered else list(self._results(since)),
        )
        planned = await self.planned(member, moment)
        if any(handoff.input_filter is not None for _, handoff in handoffs):
            history = await _filtered(list(scene.messages), handoffs, context)
            planned = replace(planned, history=history)
        return planned

    async def _began(self, member: Member, moment: Moment) -> None:
        """Tell the agent's hooks that it begins to speak."""
        context = await self._contexts.wrapped(moment.context)
        if moment.source is not None:
            await member.tell("on_handoff", context, moment.source)
        await member.tell("on_start", context)

    async def planned(self, member: Member, moment: Moment) -> RoundPlan:
        """The next round of this agent.

        Raises:
            GuardrailTripped: a guardrail does not let the input pass.
            AgentCodeFailed: a function of the agent's author fails.
        """
        agent, plan = member.agent, self._plans[id(member.agent)]
        if moment.is_first:
            for guardrail in getattr(agent, "input_guardrails", None) or ():
                await _guard("input", guardrail, member, moment.said, moment.context)
        if not moment.has_called:
            await self._began(member, moment)
        for name, result in moment.results:
            if member.stops_at is not None and (not member.stops_at or name in member.stops_at):
                return replace(plan, answer=result, check=self._check(member, moment, typed=False))
        if callable(agent.instructions) and not plan.instructions:
            what = f"instructions of agent '{agent.name}'"
            context = await self._contexts.wrapped(moment.context)
            text = await called(what, agent.instructions, context, agent)
            plan = replace(plan, instructions=_instructions(str(text)))
        offered = await self._offered(member, moment)
        exclusive = [tool.spec.name for tool in member.tools if isinstance(tool, HandoffTool)]
        choice = member.settings.tool_choice
        if moment.has_called and getattr(agent, "reset_tool_choice", True):
            choice = None
        if choice not in (None, "auto", "none", "required") and choice not in offered:
            choice = None
        return replace(
            plan,
            offered=offered,
            exclusive=exclusive,
            tool_choice=choice,
            check=self._check(member, moment, typed=True),
        )

    def handed_over(self, member: Member, name: str) -> Member:
        """The agent that goes on after a call of this tool."""
        tool = self._tools.get(name)
        return self._members[id(tool.target)] if isinstance(tool, HandoffTool) else member

    @property
    def toolbox(self) -> AgentToolbox:
        return self._toolbox

    @property
    def policy(self) -> Policy:
        return self._policy

    def _check(self, member: Member, moment: Moment, *, typed: bool) -> Any:
        guardrails = getattr(member.agent, "output_guardrails", None) or ()
        if not guardrails and member.hooks is None and (member.output is None or not typed):
            return None

        async def check(text: str) -> None:
            value: Any = text
            if member.output is not None and typed:
                value = member.output.parsed(text)
            for guardrail in guardrails:
                await _guard("output", guardrail, member, value, moment.context)
            await member.tell("on_end", await self._contexts.wrapped(moment.context), value)

        return check

    async def _offered(self, member: Member, moment: Moment) -> frozenset[str]:
        """Its own tools as far as they are switched on, and those that the agent's file adds."""
        own = {tool.spec.name: tool for tool in member.tools}
        servers = {prefix for other in self.members for prefix in other.servers}
        offered = set()
        for spec in self._toolbox.specs():
            name = spec.name
            if name in self._tools:
                if name in own and await self._is_enabled(own[name], member, moment):
                    offered.add(name)
                continue
            prefix = next((prefix for prefix in servers if name.startswith(prefix)), None)
            if prefix is None:
                offered.add(name)
            elif prefix in member.servers:
                if member.servers[prefix].lets_pass(name.removeprefix(prefix)):
                    offered.add(name)
        return frozenset(offered)

    async def _is_enabled(self, tool: TeamTool, member: Member, moment: Moment) -> bool:
        enabled = tool.is_enabled
        if not callable(enabled):
            return bool(enabled)
        what = f"is_enabled of '{tool.spec.name}'"
        context = await self._contexts.wrapped(moment.context)
        return bool(await called(what, enabled, context, member.agent))

    def _handoffs(self, state: ThreadState, run: Run) -> list[tuple[Call, HandoffTool]]:
        """Those of the visible branch that took place, oldest first; without filters, the last one
        is enough."""
        tools = [tool for tool in self._tools.values() if isinstance(tool, HandoffTool)]
        if not tools:
            return []
        # Filters need them all, hooks the one before.
        all_count = any(tool.input_filter is not None for tool in tools)
        all_count |= any(member.hooks is not None for member in self.members)
        found: list[tuple[Call, HandoffTool]] = []
        at: Run | None = run
        while at is not None:
            for call in reversed(at.calls.values()):
                tool = self._tools.get(call.proposed.name)
                is_done = call.finished is not None and call.finished.outcome == "ok"
                if isinstance(tool, HandoffTool) and is_done:
                    found.append((call, tool))
                    if not all_count:
                        return found
            at = state.run(at.parent_run) if at.parent_run is not None else None
        return found[::-1]

    def _results(self, calls: Sequence[Call]) -> Iterator[tuple[str, str]]:
        """Those of the last round that came to an end as they should."""
        last = calls[-1].proposal.round if calls else 0
        for call in calls:
            name, finished = call.proposed.name, call.finished
            is_function = isinstance(self._tools.get(name), SdkTool | AgentTool)
            if call.proposal.round == last and is_function and finished is not None:
                if finished.outcome == "ok":
                    yield name, finished.result


def _are_same(first: Any, made: Any) -> bool:
    if isinstance(first, HandoffTool):
        return first.is_same(made)
    return first is made or first.source is made.source


def _instructions(text: str) -> tuple[Message, ...]:
    return (Message(role="system", content=text),) if text else ()


def _calls_since(run: Run, handoff: Call | None) -> list[Call]:
    """The run's calls after the round in which it was handed over."""
    first = 0
    if handoff is not None and handoff.proposal.call_id in run.calls:
        first = handoff.proposal.round
    return [call for call in run.calls.values() if call.proposal.round > first]


def _steered(run: Run) -> list[str]:
    """What the user has said since the last calls: guardrails see it like a first message."""
    last = max((call.proposal.round for call in run.calls.values()), default=0)
    return [
        one.said.content
        for one in run.delivered
        if one.delivery is not None and one.delivery.round > last
    ]


def _user_text(run: Run) -> str:
    parts = run.message.parts if run.message is not None else ()
    texts = [part.content for part in parts if part.kind == "text"]
    return "\n".join(texts if run.calls else [*texts, *_steered(run)])


def _refuse_tripped(run: Run) -> None:
    for call in run.calls.values():
        data = (call.finished.extra_data if call.finished is not None else None) or {}
        if TRIPPED in data:
            raise GuardrailTripped(f"{data[TRIPPED]} stopped the run.")


async def _guard(
    kind: str, guardrail: Any, member: Member, value: Any, context: ToolContext
) -> None:
    """Raises GuardrailTripped, AgentCodeFailed."""
    what = f"The {kind} guardrail '{guardrail_name(guardrail)}'"
    function = guardrail.guardrail_function
    given = await member.contexts.wrapped(context)
    found = await called(what, function, given, member.agent, value)
    # Only a clear no lets it pass.
    if getattr(found, "tripwire_triggered", None) is not False:
        raise GuardrailTripped(f"{what} stopped the run.")


async def _filtered(
    messages: list[Message],
    handoffs: Sequence[tuple[Call, HandoffTool]],
    context: ToolContext,
) -> list[Message]:
    """What is left after the filters of all handoffs, each on what was said until then."""
    seen: list[Message] = []
    rest = messages
    for call, handoff in handoffs:
        identity = call.proposal.call_id
        places = [at for at, one in enumerate(rest) if one.tool_call_id == identity]
        if places:
            end = places[0] + 1
            # The other results of the round stand beside it.
            while end < len(rest) and rest[end].role == "tool":
                end += 1
            seen, rest = seen + rest[:end], rest[end:]
        seen = await handoff.filtered(seen, context)
    return seen + rest
