"""All tools of one agent behind the engine's port."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from typing import Any, Protocol, Self

from sk_agents.engine.models import ToolCall
from sk_agents.engine.turns import Preview, ToolChunk, ToolContext, ToolResult, ToolSpec
from sk_agents.exceptions import ConfigurationError, ToolError
from sk_agents.tools.base_tool import Tool, ToolStream, storable
from sk_agents.tools.json_schema import check_answer

MOST_NAMES = 20


class ToolSource(Protocol):
    """Tools that come and go while the server runs. Their names begin with one of `prefixes`."""

    prefixes: tuple[str, ...]

    def tools(self) -> Sequence[Tool]:
        """Those there are now, no name twice; the same object for as long as they are the same."""
        ...

    def refusal(self, name: str) -> str | None:
        """Why a tool that it knows is not among them, for the model; `None` if it knows none."""
        ...


class StorablePieces:
    """What a tool gives out, without what no store takes. It is no generator: the event loop would
    register one and remove it again, for every call."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: ToolStream) -> None:
        self._pieces = pieces

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ToolChunk | ToolResult:
        piece = await anext(self._pieces)
        text = storable(piece.content)
        return piece if text == piece.content else replace(piece, content=text)

    async def aclose(self) -> None:
        await self._pieces.aclose()


class AgentToolbox:
    """Tools in the order of their sources, those of live sources last.

    Two of one name stop start-up, and so does a tool named like one of a live source.
    """

    def __init__(self, *sources: Iterable[Tool] | ToolSource) -> None:
        self._fixed: dict[str, Tool] = {}
        self._live: list[ToolSource] = []
        for source in sources:
            if isinstance(source, Iterable):
                self._add(source)
            elif source.prefixes:
                self._live.append(source)
        self._refuse_taken_prefixes()
        self._seen: list[Sequence[Tool]] = [() for _ in self._live]
        self._known = dict(self._fixed)
        self._specs = tuple(tool.spec for tool in self._known.values())

    def _add(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            first = self._fixed.setdefault(tool.spec.name, tool)
            if first is not tool:
                raise ConfigurationError(
                    f"{tool.origin}: tool '{tool.spec.name}' is also defined by {first.origin}"
                )

    @property
    def live_prefixes(self) -> tuple[str, ...]:
        """How the names of tools begin that are not known before the server runs."""
        return tuple(prefix for source in self._live for prefix in source.prefixes)

    def _refuse_taken_prefixes(self) -> None:
        for name, tool in self._fixed.items():
            if name.startswith(self.live_prefixes):
                raise ConfigurationError(
                    f"{tool.origin}: tool '{name}' is named like one of an MCP server"
                )

    def specs(self) -> Sequence[ToolSpec]:
        self._tools()
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        tool = self._tools().get(name)
        return tool.spec if tool is not None else None

    def requires_approval(self, name: str) -> bool | None:
        """What the tool itself declares; `None` if that is nothing."""
        tool = self._tools().get(name)
        return tool.requires_approval if tool is not None else None

    def check(self, call: ToolCall) -> dict[str, Any]:
        return self._tool(call.name).check(call.arguments)

    async def preview(self, call: ToolCall, context: ToolContext) -> Preview | None:
        try:
            return await self._tool(call.name).preview(deepcopy(call.arguments), context)
        except ToolError as error:
            return f"This call would fail: {error}"

    async def sign_ins(self, names: Collection[str], user_id: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in names:
            tool = self._tools().get(name)
            if tool is not None and (place := await tool.sign_in(user_id)) is not None:
                found[name] = place
        return found

    def check_answer(self, schema: Mapping[str, Any], answer: Any) -> None:
        check_answer(schema, answer)

    def run(self, call: ToolCall, context: ToolContext) -> StorablePieces:
        tool = self._tool(call.name)
        # A copy: what the tool does to it changes neither the record nor its digest.
        return StorablePieces(tool.run(deepcopy(call.arguments), context))

    def _tools(self) -> Mapping[str, Tool]:
        """Those there are now. The first of a name stays: a server cannot replace it."""
        if not self._live:
            return self._known
        seen = [source.tools() for source in self._live]
        if any(now is not then for now, then in zip(seen, self._seen, strict=True)):
            self._seen, self._known = seen, dict(self._fixed)
            for tool in chain.from_iterable(seen):
                self._known.setdefault(tool.spec.name, tool)
            self._specs = tuple(tool.spec for tool in self._known.values())
        return self._known

    def _tool(self, name: str) -> Tool:
        try:
            return self._tools()[name]
        except KeyError:
            raise ToolError(self._unknown(name[:64])) from None

    def _unknown(self, name: str) -> str:
        for source in self._live:
            if reason := source.refusal(name):
                return reason
        tools = self._tools()
        near = get_close_matches(name, tools, n=3, cutoff=0.5)
        known = near or [*tools][:MOST_NAMES]
        hint = f"Did you mean {', '.join(known)}?" if known else "There are no tools."
        return f"There is no tool {ascii(name)}. {hint}"
