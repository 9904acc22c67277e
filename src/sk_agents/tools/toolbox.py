"""All tools of one agent behind the engine's port."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from copy import deepcopy
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from sk_agents.engine.models import ToolCall
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult, ToolSpec
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.member import Tool
from sk_agents.tools.results import storable

MOST_NAMES = 20


class Toolbox:
    """Tools in the order of their sources. Two of one name stop start-up."""

    def __init__(self, *sources: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in (tool for source in sources for tool in source):
            first = self._tools.setdefault(tool.spec.name, tool)
            if first is not tool:
                raise ConfigurationError(
                    f"{tool.origin}: tool '{tool.spec.name}' is also defined by {first.origin}"
                )
        self._specs = tuple(tool.spec for tool in self._tools.values())

    def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        tool = self._tools.get(name)
        return tool.spec if tool is not None else None

    def requires_approval(self, name: str) -> bool | None:
        """What the tool itself declares; `None` if that is nothing."""
        tool = self._tools.get(name)
        return tool.requires_approval if tool is not None else None

    def requires_authorization(self, name: str) -> bool:
        """True: the tool is not run without the caller's `Authorization` header."""
        tool = self._tools.get(name)
        return tool is not None and tool.requires_authorization

    def check(self, call: ToolCall) -> dict[str, Any]:
        return self._tool(call.name).check(call.arguments)

    async def run(
        self, call: ToolCall, context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult]:
        tool = self._tool(call.name)
        # A copy: what the tool does to it changes neither the record nor its digest.
        async with aclosing(tool.run(deepcopy(call.arguments), context)) as pieces:
            async for piece in pieces:
                yield replace(piece, content=storable(piece.content))

    def _tool(self, name: str) -> Tool:
        try:
            return self._tools[name]
        except KeyError:
            raise ToolError(self._unknown(name[:64])) from None

    def _unknown(self, name: str) -> str:
        near = get_close_matches(name, self._tools, n=3, cutoff=0.5)
        known = near or [*self._tools][:MOST_NAMES]
        hint = f"Did you mean {', '.join(known)}?" if known else "There are no tools."
        return f"There is no tool {ascii(name)}. {hint}"
