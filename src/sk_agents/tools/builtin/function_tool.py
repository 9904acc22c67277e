"""A function of our own as a tool."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolContext, ToolResult
from sk_agents.exceptions import ToolError
from sk_agents.tools.base_tool import Tool, ToolStream, tool_spec
from sk_agents.tools.parameters import parameters_of
from sk_agents.worker_threads import WorkerThreads

Preview = Callable[[Mapping[str, Any], ToolContext], str]


@dataclass(frozen=True, slots=True)
class BuiltinFunction:
    """What is said about a function beside its signature and its docstring.

    `asks` is left open only where nothing is written, deleted, executed or sent. `bound_to` is
    what else an approval is for: the folder, the hosts, the limits. `preview` may block on files.
    """

    plugin: str
    function: Callable[..., Any]
    effect: Effect = Effect.AT_MOST_ONCE
    asks: bool | None = True
    timeout: float = 60.0
    is_question: bool = False
    bound_to: Any = None
    preview: Preview | None = None


class FunctionTool(Tool):
    """A plain function runs in a thread, a coroutine and a generator of pieces on the loop."""

    def __init__(self, builtin: BuiltinFunction, threads: WorkerThreads) -> None:
        function, name = builtin.function, builtin.function.__name__
        self.origin = f"built-in {name}"
        self.requires_approval = builtin.asks
        self._builtin, self._threads = builtin, threads
        self._parameters = parameters_of(function, bound=True, origin=self.origin)
        spec = tool_spec(
            name=f"{builtin.plugin}-{name}",
            description=inspect.getdoc(function) or "",
            parameters=self._parameters.schema,
            origin=self.origin,
            effect=builtin.effect,
            timeout=builtin.timeout,
        )
        goal = digest([spec.definition_digest, builtin.bound_to])
        self.spec = replace(spec, definition_digest=goal, question=builtin.is_question)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._parameters.check(arguments)

    async def preview(self, arguments: dict[str, Any], context: ToolContext) -> str | None:
        shown = self._builtin.preview
        if shown is None:
            return None
        try:
            return await self._threads.run(lambda: shown(arguments, context))
        except OSError as error:
            raise ToolError("The workspace cannot be read now.") from error

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        values, function = self._parameters.values(arguments), self._builtin.function
        if self._parameters.context is not None:
            values[self._parameters.context] = context
        if inspect.isasyncgenfunction(function):
            async with aclosing(function(**values)) as pieces:
                async for piece in pieces:
                    yield piece
        elif inspect.iscoroutinefunction(function):
            yield ToolResult(await function(**values))
        else:
            yield ToolResult(await self._threads.run(lambda: function(**values)))
