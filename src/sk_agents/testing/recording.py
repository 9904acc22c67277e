"""A run that was recorded, and its replay: what `teal export-test` writes is a test of this.

In a replay the model says what it said, each tool returns what it returned, and a person decides
as one decided. Nothing is called. With an agent's file the rules, tools' parameters, redaction and
limits are those of the file, so that the test fails when one of them changes what happens; without
a file all of it is as it was recorded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from sk_agents.config.agent_file import read_agent_file
from sk_agents.config.settings import Settings
from sk_agents.engine.agent import Agent
from sk_agents.engine.calls.call import Approval
from sk_agents.engine.commands import DecideApproval, StartRun, SteerRun
from sk_agents.engine.defaults import RandomIds, SystemClock
from sk_agents.engine.engine import Engine
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import Effect, NewThread, Part, Review, RunStatus, ToolCall, UserInput
from sk_agents.engine.ports import Policy, Toolbox
from sk_agents.engine.turns import (
    CallRequested,
    ModelPiece,
    Preview,
    Prompt,
    ReasoningDelta,
    TextDelta,
    ToolChunk,
    ToolContext,
    ToolResult,
    ToolSpec,
    TurnFinished,
)
from sk_agents.exceptions import ToolError
from sk_agents.persistence.memory.store import MemoryStore
from sk_agents.signals.local import LocalSignals
from sk_agents.testing.scripted_model import ScriptedModel, Turn
from sk_agents.tools.json_schema import check_answer
from sk_agents.wiring import build_parts

# A replay waits for no model and no person.
SECONDS = 60.0
USER = "recorded"
THREAD, RUN = "replay", "run"
# What a model in an agent's file may need besides its name.
MODEL_FIELDS = (
    *("api", "api_version", "api_key_env", "headers", "query", "extra_body"),
    *("client_cert", "client_key"),
)


class _Recorded(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedCall(_Recorded):
    """`decision` is what a person said if one was asked; `result` is `None` if the tool did not
    run. `problem` is why the call could not be made, `answer` what the user said to its question.
    A call that was `remembered` needed no decision of its own, one `near_budget` needed one
    whatever the rules said; for one that was `declined` the user lent no authorization."""

    tool: str
    arguments: dict[str, Any] = {}
    result: str | None = None
    failed: bool = False
    decision: Literal["approved", "rejected"] | None = None
    message: str | None = None
    edited_arguments: dict[str, Any] | None = None
    denied: bool = False
    problem: str | None = None
    answer: Any = None
    remembered: bool = False
    near_budget: bool = False
    declined: bool = False

    @property
    def run_arguments(self) -> dict[str, Any]:
        return self.arguments if self.edited_arguments is None else self.edited_arguments


class RecordedTurn(_Recorded):
    """One reply of the model. `told` is what the user had said to the run before it was asked."""

    told: tuple[str, ...] = ()
    thinking: str = ""
    text: str = ""
    calls: tuple[RecordedCall, ...] = ()


class RecordedTool(_Recorded):
    name: str
    description: str = ""
    effect: Effect = Effect.AT_MOST_ONCE
    parameters: dict[str, Any] = {"type": "object"}


class RecordedItem(_Recorded):
    kind: Literal["text", "image", "file"]
    content: str
    name: str | None = None


class Recording(_Recorded):
    """A run: what the user said, what the model replied, which tools there were."""

    message: str
    agent: str = ""
    items: tuple[RecordedItem, ...] = ()
    turns: tuple[RecordedTurn, ...]
    tools: tuple[RecordedTool, ...] = ()


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a replay. `calls` are the calls that ran, with their arguments; `asked` are
    the tools for which a person was asked, `refused` those whose calls did not run."""

    status: str
    answer: str | None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    prompts: int = 0


def replay(recording: Recording, agent_file: Path | str | None = None) -> Replayed:
    """Run it again; for tests without an event loop of their own.

    Raises:
        ConfigurationError: the agent's file cannot be used.
        TimeoutError: it does not come to an end.
    """
    return asyncio.run(replayed(recording, agent_file))


async def replayed(recording: Recording, agent_file: Path | str | None = None) -> Replayed:
    """The same, awaited."""
    calls = _RecordedCalls(recording)
    model = _RecordedModel(recording)
    if agent_file is None:
        tools = _RecordedTools(recording, calls)
        agent = Agent(recording.agent or "recorded", model, tools, _RecordedPolicy(calls))
    else:
        agent = _agent_of(agent_file, recording)
        tools = _RecordedTools(recording, calls, agent.toolbox)
        policy = _FilePolicy(agent.policy, calls)
        agent = replace(agent, model=model, toolbox=tools, policy=policy)
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        store = await stack.enter_async_context(MemoryStore(clock=SystemClock()))
        engine = Engine(
            store,
            {agent.name: agent},
            signals=LocalSignals(),
            clock=SystemClock(),
            ids=RandomIds(),
            owner=USER,
        )
        await stack.enter_async_context(engine)
        model.engine = engine
        return await _run(engine, agent, recording, calls, model)


async def _run(
    engine: Engine,
    agent: Agent,
    recording: Recording,
    calls: _RecordedCalls,
    model: _RecordedModel,
) -> Replayed:
    parts = [Part(content=recording.message)]
    # Said before the model was asked at all.
    parts += [Part(content=text) for turn in recording.turns[:1] for text in turn.told]
    parts += [
        Part(kind=item.kind, content=item.content, name=item.name) for item in recording.items
    ]
    new = NewThread(USER, agent=agent.name)
    message = UserInput(parts=tuple(parts))
    await engine.start(StartRun(THREAD, USER, RUN, message, new=new))
    asked: list[str] = []
    run = await engine.result(THREAD, RUN)
    while run.status is RunStatus.WAITING:
        for approval in run.pending_approvals:
            call = run.calls[approval.request.call_id].proposed
            recorded = calls.of(call)
            if approval.request.kind == "tool" and not (recorded and recorded.remembered):
                asked.append(call.name)
            for command in _decisions(approval, recorded):
                await engine.decide(command)
        run = await engine.result(THREAD, RUN)
    return _result(run, asked, len(model.prompts))


def _decisions(approval: Approval, recorded: RecordedCall | None) -> Iterator[DecideApproval]:
    """As it was decided; a call that was not asked about is let through, and shows in `asked`.

    What others decide, as many of them decide as must.
    """
    recorded = recorded or RecordedCall(tool="")
    approved = recorded.decision != "rejected"
    is_question = approval.request.kind == "question"
    if is_question:
        approved = recorded.answer is not None
    voters = approval.missing if approved else min(approval.missing, 1)
    for user in [f"{USER}-{number}" for number in range(voters)] or [USER]:
        yield DecideApproval(
            approval.request.approval_id,
            user,
            approved=approved,
            message=recorded.message,
            edited_arguments=recorded.edited_arguments if approved else None,
            answer=recorded.answer if is_question else None,
            authorization=USER,
            memberships=frozenset(approval.audience.keys),
        )


def _result(run: Run, asked: list[str], prompts: int) -> Replayed:
    ran, refused = [], []
    for call in run.calls.values():
        finished = call.finished
        is_question = call.approval is not None and call.approval.request.kind == "question"
        has_run = call.started is not None or is_question
        if finished is not None and finished.outcome in {"ok", "error"} and has_run:
            running = call.wanted
            ran.append((running.name, dict(running.arguments)))
        else:
            refused.append(call.proposed.name)
    answer = run.answer.content if run.answer is not None else None
    return Replayed(str(run.status.value), answer, ran, asked, refused, prompts)


def _turn(turn: RecordedTurn) -> Turn:
    pieces: list[Any] = [ReasoningDelta(turn.thinking)] if turn.thinking else []
    if turn.text:
        pieces.append(TextDelta(turn.text))
    pieces += [
        CallRequested(f"recorded-{number}", call.tool, json.dumps(call.arguments))
        for number, call in enumerate(turn.calls, 1)
    ]
    return [*pieces, TurnFinished("tool_calls" if turn.calls else "stop")]


def _agent_of(path: Path | str, recording: Recording) -> Agent:
    """The file's agent, on a model that needs neither key nor network."""
    file = read_agent_file(Path(path).absolute())
    document = json.loads(json.dumps(file.document, default=str))
    spec = document.get("spec", {})
    for block in [spec.get("agent"), *(spec.get("agents") or [])]:
        if isinstance(block, dict):
            for name in MODEL_FIELDS:
                block.pop(name, None)
            block |= {"model": "recorded", "base_url": "http://127.0.0.1:9/v1"}
    settings = Settings(store="memory:")
    served = build_parts(settings, [replace(file, document=document)]).agents
    chosen = served.get(recording.agent) or next(iter(served.values()))
    return chosen.agent


class _RecordedModel(ScriptedModel):
    """Says what was said. What the user told the run before a reply is told to it again while the
    reply before that one is being given: the next call of the model gets it then, as it did."""

    engine: Engine

    def __init__(self, recording: Recording) -> None:
        super().__init__([_turn(turn) for turn in recording.turns])
        self._told = [turn.told for turn in recording.turns[1:]]

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[ModelPiece], None]:
        number = len(self.prompts)
        for text in self._told[number] if number < len(self._told) else ():
            await self.engine.steer(SteerRun(THREAD, USER, RUN, text))
        async with aclosing(super().stream(prompt)) as pieces:
            async for some in pieces:
                yield some


class _RecordedCalls:
    """Which recorded call a call of the replay is: the first of this tool with these arguments
    that no other one has taken."""

    def __init__(self, recording: Recording) -> None:
        self._left = [call for turn in recording.turns for call in turn.calls]
        self._taken: dict[str, RecordedCall] = {}

    def of(self, call: ToolCall) -> RecordedCall | None:
        if call.id in self._taken:
            return self._taken[call.id]
        same = [one for one in self._left if one.tool == call.name]
        exact = [one for one in same if call.arguments in (one.arguments, one.run_arguments)]
        if not (fitting := exact or same):
            return None
        self._left.remove(fitting[0])
        return self._taken.setdefault(call.id, fitting[0])


class _RecordedTools:
    """A `Toolbox` that returns what was recorded. `real` checks arguments, and runs nothing."""

    def __init__(
        self, recording: Recording, calls: _RecordedCalls, real: Toolbox | None = None
    ) -> None:
        self._calls = calls
        self._real = real
        # Tools of MCP servers are not in the file, and no server is started.
        known = list(real.specs()) if real is not None else []
        names = {spec.name for spec in known}
        self._real_names = frozenset(names)
        self._specs = [
            *known,
            *(
                ToolSpec(tool.name, tool.description, tool.parameters, tool.effect)
                for tool in recording.tools
                if tool.name not in names
            ),
        ]

    def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    def check(self, call: ToolCall) -> Mapping[str, object]:
        if self._real is not None and call.name in self._real_names:
            return self._real.check(call)
        recorded = self._calls.of(call)
        if recorded is not None and recorded.problem is not None:
            raise ToolError(recorded.problem)
        if call.name not in {spec.name for spec in self._specs}:
            raise ToolError(f"There is no tool {call.name}.")
        return call.arguments

    async def sign_ins(self, names: Collection[str], user_id: str) -> Mapping[str, str]:
        return {}

    def check_answer(self, schema: Mapping[str, object], answer: object) -> None:
        check_answer(schema, answer)

    async def preview(self, call: ToolCall, context: ToolContext) -> Preview | None:
        return None

    async def run(
        self, call: ToolCall, context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult, None]:
        recorded = self._calls.of(call)
        if recorded is None or recorded.result is None:
            raise ToolError("No result of this call was recorded.")
        if recorded.failed:
            raise ToolError(recorded.result)
        yield ToolResult(recorded.result)


class _FilePolicy(Policy):
    """The file's rules, and what decided beside them: a budget that was nearly used up, and a user
    who did not lend their authorization."""

    def __init__(self, rules: Policy, calls: _RecordedCalls) -> None:
        self._rules = rules
        self._calls = calls

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Literal["allow", "ask", "deny"]:
        recorded = self._calls.of(call)
        if recorded is not None and recorded.declined:
            return "deny"
        verdict = self._rules.verdict(call, spec)
        if verdict == "allow" and recorded is not None and recorded.near_budget:
            return "ask"
        return verdict

    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        return self._rules.review(call, spec)


class _RecordedPolicy(Policy):
    """Asks where a person was asked, and denies what the rules denied."""

    def __init__(self, calls: _RecordedCalls) -> None:
        self._calls = calls

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Literal["allow", "ask", "deny"]:
        recorded = self._calls.of(call)
        if recorded is None or recorded.decision is not None:
            return "ask"
        return "deny" if recorded.denied or recorded.declined else "allow"

    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        return None
