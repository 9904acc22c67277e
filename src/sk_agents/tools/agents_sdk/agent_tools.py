"""An agent as a tool of another: its own conversation with a model, inside of one call.

Its tools are those of the whole team, and the same policy decides about them. A call that the
policy would ask about is put to the user as a question while the tool runs; where that cannot be
done as the policy wants it, the call is refused. It never runs unasked.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol

from sk_agents.engine.calls.proposals import parse_arguments
from sk_agents.engine.models import Effect, Message, ToolCall, Usage
from sk_agents.engine.ports import Policy, RoundPlan
from sk_agents.engine.run.context_window import tokens
from sk_agents.engine.turns import (
    CallRequested,
    Prompt,
    Question,
    ReasoningState,
    ReplyLimits,
    TextDelta,
    ToolChunk,
    ToolContext,
    ToolResult,
    ToolSpec,
    TurnFinished,
)
from sk_agents.exceptions import (
    ConfigurationError,
    GuardrailTripped,
    ModelError,
    ModelInterrupted,
    OutputInvalid,
    ReplyTooLarge,
    ToolError,
)
from sk_agents.tools.agents_sdk.author_code import enclosed
from sk_agents.tools.agents_sdk.function_tools import TRIPPED
from sk_agents.tools.agents_sdk.member import Member, Moment
from sk_agents.tools.base_tool import Tool, ToolStream, tool_spec
from sk_agents.tools.declarations import DEFAULT_TIMEOUT, declaration_of
from sk_agents.tools.json_schema import ArgumentSchema, UnusableSchema
from sk_agents.tools.toolbox import AgentToolbox

ALLOW, REFUSE = "allow", "refuse"
USUAL_ROUNDS = 10
# Models take longer than functions.
USUAL_SECONDS = 600.0
MOST_DEPTH = 4
# In one round.
MOST_CALLS = 16
# What an answer is taken to use at most where its agent names no bound.
USUAL_ANSWER_TOKENS = 4_096
# Where the model does not count.
BYTES_PER_TOKEN = 4
# An answer of the wrong type is asked for once more.
ATTEMPTS = 2
# Each would change what the agent is told, does or answers.
_REFUSED = (
    *("custom_output_extractor", "run_config", "hooks", "session", "input_builder"),
    *("previous_response_id", "conversation_id"),
)


class NestedTeam(Protocol):
    """What an agent inside of a tool needs of its team."""

    async def planned(self, member: Member, moment: Moment) -> RoundPlan: ...

    def handed_over(self, member: Member, name: str) -> Member: ...

    @property
    def toolbox(self) -> AgentToolbox: ...

    @property
    def policy(self) -> Policy: ...


class AgentTool(Tool):
    def __init__(
        self, tool: Any, member: Member, team: NestedTeam, place: str, *, only_reads: bool
    ) -> None:
        """`only_reads`: all that its tools do is read.

        Raises:
            ConfigurationError: it asks for something we do not do.
        """
        self.source, self.is_enabled = tool, getattr(tool, "is_enabled", True)
        self.origin = f"{place}tool '{tool.name}'"
        self._member, self._team = member, team
        around = enclosed(tool.on_invoke_tool, "custom_output_extractor")
        if around is None:
            raise ConfigurationError(f"{self.origin}: how it runs its agent cannot be read")
        for name in _REFUSED:
            if around.get(name) is not None:
                raise ConfigurationError(f"{self.origin}: {name} is not supported here")
        for check in ("tool_input_guardrails", "tool_output_guardrails"):
            if getattr(tool, check, None):
                raise ConfigurationError(f"{self.origin}: {check} is not supported here")
        self._rounds = around.get("max_turns") or USUAL_ROUNDS
        declaration = declaration_of(tool)
        needed = getattr(tool, "needs_approval", False) is not False
        self.requires_approval = True if needed else declaration.requires_approval
        try:
            self._arguments = ArgumentSchema(tool.params_json_schema)
        except UnusableSchema as error:
            raise ConfigurationError(f"{self.origin}: its schema is unusable: {error}") from None
        own = declaration.timeout if declaration.timeout != DEFAULT_TIMEOUT else USUAL_SECONDS
        self.spec = tool_spec(
            name=tool.name,
            description=tool.description or "",
            parameters=self._arguments.schema,
            origin=self.origin,
            effect=Effect.READ_ONLY if only_reads else declaration.effect,
            timeout=getattr(tool, "timeout_seconds", None) or own,
        )

    @staticmethod
    def agent_of(tool: Any, place: str) -> Any:
        """Raises ConfigurationError: there is none."""
        agent = getattr(tool, "_agent_instance", None)
        if agent is None:
            raise ConfigurationError(f"{place}tool '{tool.name}': its agent cannot be found")
        return agent

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._arguments.check(arguments)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        # Each call inside of another one adds a number to its id.
        if context.call_id.count(".") >= MOST_DEPTH:
            raise ToolError(f"Agents call each other more than {MOST_DEPTH} deep.")
        said = arguments["input"] if arguments.keys() == {"input"} else None
        if not isinstance(said, str):
            said = json.dumps(arguments, ensure_ascii=False)
        conversation = _Conversation(self._member, self._team, said, context)
        try:
            for _ in range(self._rounds):
                async with aclosing(conversation.round()) as pieces:
                    async for piece in pieces:
                        yield ToolChunk(piece)
                if conversation.answer is not None:
                    yield ToolResult(conversation.answer, usage=conversation.usage)
                    return
        except ModelError as error:
            raise ToolError(f"The agent {self._member.agent.name} failed: {error}") from None
        raise ToolError(f"The agent did not come to an end within {self._rounds} rounds.")


class _Conversation:
    """The messages of one call of the tool; `answer` once there is one."""

    def __init__(self, member: Member, team: NestedTeam, said: str, context: ToolContext) -> None:
        self._member, self._team, self._said, self._context = member, team, said, context
        self._messages: list[Message] = [Message(role="user", content=said)]
        self._calls = 0
        self._has_called = False
        self._results: list[tuple[str, str]] = []
        self._source: Any = None
        self.answer: str | None = None
        self.usage = Usage()

    async def round(self) -> AsyncGenerator[str]:
        """One reply of the model and the calls that it asks for; what it says, as it comes.

        Raises:
            ModelError: there is no usable reply, or a guardrail does not let it pass.
            ToolError: the budget does not allow it.
        """
        moment = Moment(
            self._context,
            self._said,
            is_first=len(self._messages) == 1,
            has_called=self._has_called,
            source=self._source,
            results=self._results,
        )
        plan = await self._team.planned(self._member, moment)
        if plan.answer is not None:
            if plan.check is not None:
                await plan.check(plan.answer)
            self.answer = plan.answer
            return
        for attempt in range(1, ATTEMPTS + 1):
            reply = _Reply()
            async with aclosing(self._asked(plan, reply)) as pieces:
                async for piece in pieces:
                    if not plan.is_held:
                        yield piece
            if reply.calls:
                await self._run(reply, plan)
                return
            try:
                if plan.check is not None:
                    await plan.check(reply.text)
            except OutputInvalid:
                if attempt == ATTEMPTS:
                    raise
                continue
            self.answer = reply.text
            return

    async def _asked(self, plan: RoundPlan, reply: _Reply) -> AsyncGenerator[str]:
        messages = [*plan.instructions, *self._messages]
        specs = self._team.toolbox.specs()
        tools = tuple(spec for spec in specs if plan.offered is None or spec.name in plan.offered)
        prompt = Prompt(
            messages=messages,
            tools=tools,
            temperature=plan.temperature,
            max_tokens=plan.max_tokens,
            reasoning_effort=plan.reasoning_effort,
            response_schema=plan.response_schema,
            tool_choice=plan.tool_choice if tools else None,
            parallel_tool_calls=plan.parallel_tool_calls if tools else None,
        )
        settle, prompt_tokens = None, tokens(messages)
        if self._context.reserve is not None:
            most = plan.max_tokens or USUAL_ANSWER_TOKENS
            estimate = Usage(prompt_tokens=prompt_tokens, completion_tokens=most)
            settle = await self._context.reserve(estimate)
        try:
            async with aclosing(plan.model.stream(prompt)) as stream:
                async for pieces in stream:
                    for piece in pieces:
                        if isinstance(text := reply.take(piece), str):
                            yield text
        finally:
            used = reply.used(prompt_tokens)
            self.usage += used
            if settle is not None:
                await settle(used)
        if not reply.is_whole:
            raise ModelInterrupted

    async def _run(self, reply: _Reply, plan: RoundPlan) -> None:
        """The calls of one reply, one after the other."""
        calls: list[ToolCall] = []
        results: list[Message] = []
        self._results, self._has_called = [], True
        has_left = False
        for wanted in reply.calls:
            self._calls += 1
            plugin, _, function = wanted.name.rpartition("-")
            identity = f"{self._context.call_id}.{self._calls}"
            call = ToolCall(id=identity, plugin_name=plugin, function_name=function, arguments={})
            is_exclusive = wanted.name in plan.exclusive
            try:
                if plan.offered is not None and wanted.name not in plan.offered:
                    raise ToolError(f"There is no tool named {ascii(wanted.name[:64])}.")
                if calls and plan.parallel_tool_calls is False:
                    raise ToolError("One call at a time.")
                if is_exclusive and has_left:
                    raise ToolError("Another call of this round has done that already.")
                call = call.model_copy(update={"arguments": parse_arguments(wanted.arguments)})
                checked = dict(self._team.toolbox.check(call))
                call = call.model_copy(update={"arguments": checked})
                text = await self._result(call)
                self._results.append((call.name, text))
                if is_exclusive:
                    has_left = True
                    left = self._member
                    self._member = self._team.handed_over(left, call.name)
                    self._results, self._has_called = [], False
                    self._source = left.agent
            except ToolError as error:
                text = str(error)
            calls.append(call)
            results.append(Message(role="tool", content=text, tool_call_id=identity))
        self._messages.append(
            Message(
                role="assistant",
                content=reply.text,
                tool_calls=tuple(calls),
                reasoning_state=reply.state,
            )
        )
        self._messages += results

    async def _result(self, call: ToolCall) -> str:
        """What the tool returns, if it may run.

        Raises:
            ToolError: it may not, or fails. The text is for the model.
            GuardrailTripped: one of its guardrails ends this agent.
        """
        toolbox = self._team.toolbox
        spec = next(spec for spec in toolbox.specs() if spec.name == call.name)
        await self._allow(call, spec)
        key = f"{self._context.idempotency_key}.{self._calls}"
        context = replace(self._context, call_id=call.id, idempotency_key=key)
        result: ToolResult | None = None
        try:
            async with aclosing(toolbox.run(call, context)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ToolResult):
                        result = piece
        except ToolError:
            raise
        except Exception as error:  # a tool's own
            raise ToolError("The tool failed (code tool_failed).") from error
        if result is None:
            raise ToolError("The tool ended without a result (code tool_no_result).")
        if result.usage is not None:
            self.usage += result.usage
        if TRIPPED in (result.extra_data or {}):
            raise GuardrailTripped(f"{(result.extra_data or {})[TRIPPED]} stopped it.")
        return result.content

    async def _allow(self, call: ToolCall, spec: ToolSpec) -> None:
        """Return iff the call may run. Raises ToolError."""
        policy, ask = self._team.policy, self._context.ask
        verdict = policy.verdict(call, spec)
        if spec.question or spec.requires_authorization:
            raise ToolError(f"{call.name} cannot be used by an agent inside of a tool.")
        if verdict == "allow":
            return
        if verdict == "deny":
            raise ToolError(f"{call.name} is not allowed.")
        if ask is None or policy.review(call, spec) is not None:
            raise ToolError(
                f"{call.name} needs an approval that cannot be asked for inside of a tool."
            )
        arguments = json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)
        text = f"The agent {self._member.agent.name} wants to call {call.name} with {arguments}"
        if await ask(Question(text, choices=(ALLOW, REFUSE))) != ALLOW:
            raise ToolError(f"The user does not allow this call of {call.name}.")


class _Reply:
    """A model's reply inside of a tool, within the bounds of every reply."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: list[CallRequested] = []
        self.state: Mapping[str, Any] | None = None
        self.usage = Usage()
        self.is_whole = False
        self._limits = ReplyLimits(calls=MOST_CALLS)

    def used(self, prompt_tokens: int) -> Usage:
        """As the model has counted; of one that does not, or broke off, about as much as came."""
        if self.usage.total_tokens or not (self.text or self.calls):
            return self.usage
        size = len(self.text) + sum(len(call.arguments) for call in self.calls)
        return Usage(prompt_tokens=prompt_tokens, completion_tokens=size // BYTES_PER_TOKEN)

    def take(self, piece: object) -> str | None:
        """The text of a piece that is text. Raises ReplyTooLarge."""
        match piece:
            case TextDelta():
                self.text += piece.content
                if len(self.text) > self._limits.text_bytes:
                    raise ReplyTooLarge
                return piece.content
            case CallRequested():
                self.calls.append(piece)
                if len(self.calls) > self._limits.calls:
                    raise ReplyTooLarge
            case ReasoningState():
                self.state = piece.data
            case TurnFinished():
                self.usage, self.is_whole = piece.usage, True
        return None
