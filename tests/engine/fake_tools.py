"""Tools that a test can gate and count, and a policy it can set."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sk_agents.engine.models import Effect, Review, ToolCall
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult, ToolSpec
from sk_agents.exceptions import ToolError
from sk_agents.tools.json_schema import check_answer

Verdict = Literal["allow", "ask", "deny"]
Work = Callable[[dict[str, Any], ToolContext], Any]


@dataclass(slots=True)
class FakeTool:
    """`work` returns text, awaits, or yields chunks before its result."""

    spec: ToolSpec
    work: Work


def echo(arguments: dict[str, Any], context: ToolContext) -> str:
    return f"echo {arguments.get('text', '')}"


def tool(
    name: str,
    work: Work = echo,
    *,
    effect: Effect = Effect.READ_ONLY,
    timeout: float = 60.0,
    definition: str = "d1",
) -> FakeTool:
    """A tool whose one argument, `text`, must be a string if it is there."""
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    return FakeTool(ToolSpec(name, f"does {name}", parameters, effect, definition, timeout), work)


class FakeTools:
    """`started` counts executions the way a ledger would: before anything else happens."""

    def __init__(self, *tools: FakeTool) -> None:
        self.tools = {tool.spec.name: tool for tool in tools}
        self.started: list[tuple[str, dict[str, Any]]] = []
        self.contexts: list[ToolContext] = []

    def specs(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self.tools.values()]

    def redefine(self, name: str, definition: str) -> None:
        spec = replace(self.tools[name].spec, definition_digest=definition)
        self.tools[name] = replace(self.tools[name], spec=spec)

    def check(self, call: ToolCall) -> Mapping[str, object]:
        if call.name not in self.tools:
            raise ToolError(f"There is no tool {ascii(call.name)}.")
        if not isinstance(call.arguments.get("text", ""), str):
            raise ToolError("text: must be a string")
        return call.arguments

    async def preview(self, call: ToolCall, context: ToolContext) -> str | None:
        return None

    async def sign_ins(self, names: Collection[str], user_id: str) -> Mapping[str, str]:
        return {}

    def check_answer(self, schema: Mapping[str, object], answer: object) -> None:
        check_answer(schema, answer)

    async def run(
        self, call: ToolCall, context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult, None]:
        self.started.append((call.name, call.arguments))
        self.contexts.append(context)
        made: Any = self.tools[call.name].work(dict(call.arguments), context)
        if hasattr(made, "__aiter__"):
            async for piece in made:
                yield piece
            return
        result = await made if inspect.isawaitable(made) else made
        yield result if isinstance(result, ToolResult) else ToolResult(result)


class FakePolicy:
    """Read-only tools run, others are asked about, unless `rule` says otherwise."""

    def __init__(
        self,
        rule: Callable[[ToolCall], Verdict | None] | None = None,
        wanted_review: Review | None = None,
    ) -> None:
        self.rule = rule
        self.wanted_review = wanted_review

    def verdict(self, call: ToolCall, spec: ToolSpec) -> Verdict:
        said = self.rule(call) if self.rule is not None else None
        return said or ("allow" if spec.effect is Effect.READ_ONLY else "ask")

    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        return self.wanted_review


SEND = tool("Mail-send", effect=Effect.AT_MOST_ONCE)
LOOK = tool("Files-look")
