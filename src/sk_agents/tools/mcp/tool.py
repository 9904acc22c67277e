"""One tool of an MCP server."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult
from sk_agents.exceptions import ToolError
from sk_agents.tools.mcp.config import McpServer, ServerSpec
from sk_agents.tools.mcp.content import text_of_result
from sk_agents.tools.mcp.schema import Arguments, check_schema
from sk_agents.tools.member import Tool, tool_spec

if TYPE_CHECKING:
    import mcp_types

MOST_NAME = 64
MOST_DESCRIPTION = 4_096
MOST_CHUNKS = 1_000
# How long a call that is given up may take to say so to its server.
PARTING_SECONDS = 1.0
_UNCLEAN = re.compile(r"[^A-Za-z0-9_]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Definition:
    """What a server says about a tool. The hints are claims."""

    name: str
    description: str
    schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    is_read_only: bool = False
    is_idempotent: bool = False
    is_destructive: bool = False

    @classmethod
    def of(cls, tool: mcp_types.Tool) -> Definition:
        hints = tool.annotations
        return cls(
            name=tool.name,
            description=tool.description or tool.title or "",
            schema=tool.input_schema,
            output_schema=tool.output_schema,
            is_read_only=hints is not None and hints.read_only_hint is True,
            is_idempotent=hints is not None and hints.idempotent_hint is True,
            is_destructive=hints is not None and hints.destructive_hint is True,
        )

    def digest(self, identity: str) -> str:
        """Of everything that a person or a model was told, and of who told it.

        Raises:
            InvalidInput: the schema is no JSON.
        """
        hints = [self.is_read_only, self.is_idempotent, self.is_destructive]
        return digest([identity, self.name, self.description, dict(self.schema), hints])


class Caller(Protocol):
    """Whoever holds the connection to the server."""

    async def call(
        self, tool: McpTool, arguments: dict[str, Any], context: ToolContext, told: Told
    ) -> mcp_types.CallToolResult: ...


class Told:
    """What a running tool has said of its progress, for who watches."""

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._is_over = False
        self._news: asyncio.Future[None] | None = None

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if len(self._chunks) < MOST_CHUNKS:
            share = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            self._chunks.append(f"{message} ({share})\n" if message else f"{share}\n")
            self._tell()

    def end(self) -> None:
        self._is_over = True
        self._tell()

    async def chunks(self) -> AsyncGenerator[ToolChunk]:
        while self._chunks or not self._is_over:
            if not self._chunks:
                self._news = asyncio.get_running_loop().create_future()
                await self._news
            said, self._chunks = self._chunks, []
            for text in said:
                yield ToolChunk(text)

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class McpTool(Tool):
    """Raises UnusableSchema when made: it cannot be offered.

    Hints of a server that the operator trusts say what a second execution would do. A hint that a
    tool destroys something is believed of every server, since it only closes a gate.
    """

    def __init__(self, spec: ServerSpec, name: str, definition: Definition, caller: Caller) -> None:
        server = spec.server
        self.origin = f"MCP server '{server.name}': {definition.name[:100]}"
        self.remote_name = definition.name
        self.digest = definition.digest(spec.identity)
        self._caller = caller
        self._arguments = Arguments(definition.schema)
        if definition.output_schema is not None:
            check_schema(definition.output_schema)
        override = server.tool_governance_overrides.get(definition.name)
        self.requires_approval = override.requires_hitl if override is not None else None
        if self.requires_approval is None and definition.is_destructive:
            self.requires_approval = True
        made = tool_spec(
            name=name,
            description=_CONTROL.sub("", definition.description)[:MOST_DESCRIPTION],
            parameters=self._arguments.schema,
            origin=self.origin,
            effect=_effect(definition, server),
            timeout=server.request_timeout,
        )
        # What was approved for one server must not run at another.
        self.spec = replace(made, definition_digest=digest([made.definition_digest, self.digest]))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._arguments.check(arguments)

    async def run(
        self, arguments: dict[str, Any], context: ToolContext
    ) -> AsyncGenerator[ToolChunk | ToolResult]:
        told = Told()
        task = asyncio.create_task(self._called(arguments, context, told))
        try:
            async for chunk in told.chunks():
                yield chunk
            result = await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=PARTING_SECONDS)
        text = text_of_result(result)
        if result.is_error:
            raise ToolError(text)
        yield ToolResult(text)

    async def _called(
        self, arguments: dict[str, Any], context: ToolContext, told: Told
    ) -> mcp_types.CallToolResult:
        try:
            return await self._caller.call(self, arguments, context, told)
        finally:
            told.end()


def offered_names(server: McpServer, names: Iterable[str]) -> dict[str, str]:
    """How the server's tools are called here, by their own names; none twice.

    Those that can stay as they are do; of others that would become the same, all but the first get
    a mark.
    """
    known = dict.fromkeys(names)
    plain = {name for name in known if not _UNCLEAN.search(name)}
    taken: set[str] = set()
    found: dict[str, str] = {}
    for name in sorted(known, key=lambda name: (name not in plain, name)):
        offered = server.prefix + _UNCLEAN.sub("_", name)
        if len(offered) > MOST_NAME or offered in taken or not name:
            mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
            offered = f"{offered[: MOST_NAME - 9]}_{mark}"
        taken.add(offered)
        found[name] = offered
    return found


def _effect(definition: Definition, server: McpServer) -> Effect:
    if not server.is_trusted:
        return Effect.AT_MOST_ONCE
    if definition.is_read_only:
        return Effect.READ_ONLY
    return Effect.IDEMPOTENT if definition.is_idempotent else Effect.AT_MOST_ONCE
