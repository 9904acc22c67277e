"""The tools of an MCP server: which of them are offered, how they are named, run and read."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from pydantic_core import to_json

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolChunk, ToolContext, ToolResult
from sk_agents.exceptions import InvalidInput, ToolError
from sk_agents.tools.attachments import Collected
from sk_agents.tools.base_tool import Tool, ToolStream, tool_spec
from sk_agents.tools.json_schema import ArgumentSchema, UnusableSchema, check_schema
from sk_agents.tools.mcp.config import McpServer, ServerSpec
from sk_agents.tools.mcp.pins import Pins, Why, pin_name

if TYPE_CHECKING:
    import mcp_types

logger = logging.getLogger(__name__)

MOST_NAME = 64
MOST_DESCRIPTION = 4_096
MOST_CHUNKS = 1_000
# How long a call that is given up may take to say so to its server.
PARTING_SECONDS = 1.0
_UNCLEAN = re.compile(r"[^A-Za-z0-9_]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
MOST_TEXT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What a server says about a tool. The hints are claims."""

    name: str
    description: str
    schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    is_read_only: bool = False
    is_idempotent: bool = False
    is_destructive: bool = False
    runs_as_task_only: bool = False

    @classmethod
    def of(cls, tool: mcp_types.Tool) -> ToolDefinition:
        hints = tool.annotations
        return cls(
            name=tool.name,
            description=tool.description or tool.title or "",
            schema=tool.input_schema,
            output_schema=tool.output_schema,
            is_read_only=hints is not None and hints.read_only_hint is True,
            is_idempotent=hints is not None and hints.idempotent_hint is True,
            is_destructive=hints is not None and hints.destructive_hint is True,
            runs_as_task_only=(
                tool.execution is not None and tool.execution.task_support == "required"
            ),
        )

    def digest(self, identity: str) -> str:
        """Of everything that a person or a model reads about it, and of the server.

        Raises:
            InvalidInput: the schema is no JSON.
        """
        hints = [self.is_read_only, self.is_idempotent, self.is_destructive]
        return digest([identity, self.name, self.description, dict(self.schema), hints])


class McpCaller(Protocol):
    """What holds the connection to the server."""

    async def sign_in(self, user_id: str) -> str | None:
        """The server, by its name, if this user must sign in there first."""
        ...

    async def call(
        self,
        tool: McpTool,
        arguments: dict[str, Any],
        context: ToolContext,
        progress: ProgressMessages,
    ) -> mcp_types.CallToolResult: ...


class ProgressMessages:
    """What a running tool has reported of its progress and no reader has taken yet."""

    def __init__(self) -> None:
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()

    async def add(self, progress: float, total: float | None, message: str | None) -> None:
        if self._texts.qsize() < MOST_CHUNKS:
            share = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            self._texts.put_nowait(f"{message} ({share})\n" if message else f"{share}\n")

    def end(self) -> None:
        self._texts.put_nowait(None)

    async def chunks(self) -> AsyncGenerator[ToolChunk]:
        while (text := await self._texts.get()) is not None:
            yield ToolChunk(text)


class McpTool(Tool):
    """Raises UnusableSchema when made: it cannot be offered.

    Hints of a server that the operator trusts say what a second execution would do. A hint that a
    tool destroys something is believed of every server, since it only closes a gate.
    """

    def __init__(
        self, spec: ServerSpec, name: str, definition: ToolDefinition, caller: McpCaller
    ) -> None:
        server = spec.server
        self.origin = f"MCP server '{server.name}': {definition.name[:100]}"
        self.remote_name = definition.name
        self.digest = definition.digest(spec.identity)
        self._caller = caller
        self._arguments = ArgumentSchema(definition.schema)
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

    async def sign_in(self, user_id: str) -> str | None:
        return await self._caller.sign_in(user_id)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        progress = ProgressMessages()
        task = asyncio.create_task(self._caller.call(self, arguments, context, progress))
        task.add_done_callback(lambda _: progress.end())
        try:
            async for chunk in progress.chunks():
                yield chunk
            result = await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=PARTING_SECONDS)
        returned = as_tool_result(result)
        if result.is_error:
            raise ToolError(returned.content)
        yield returned


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


def _effect(definition: ToolDefinition, server: McpServer) -> Effect:
    if not server.is_trusted:
        return Effect.AT_MOST_ONCE
    if definition.is_read_only:
        return Effect.READ_ONLY
    return Effect.IDEMPOTENT if definition.is_idempotent else Effect.AT_MOST_ONCE


def as_tool_result(result: mcp_types.CallToolResult) -> ToolResult:
    """Texts for a model, everything else as attachments; structured content where no text says the
    same. Nothing that a part points to is fetched."""
    found = Collected()
    for block in result.content:
        found.texts.append(_taken(block, found))
    if result.structured_content is not None and all(b.type != "text" for b in result.content):
        found.texts.append(to_json(result.structured_content).decode())
    whole = found.result()
    text = whole.content or "(The tool returned nothing.)"
    text = text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "\n[cut]"
    return replace(whole, content=text)


def _taken(block: mcp_types.ContentBlock, found: Collected) -> str:
    """The text of a part, or the line about it."""
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return found.add_base64(block.data, block.mime_type, None)
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            found.add_link(str(block.uri), block.mime_type, block.title or block.name)
            return f"[resource {block.uri} ({block.name}){about}]"
        case "resource":
            resource = block.resource
            if hasattr(resource, "text"):
                return f"[resource {resource.uri}]\n{resource.text}"
            name = str(resource.uri).rstrip("/").rpartition("/")[2]
            line = found.add_base64(resource.blob, resource.mime_type, name)
            return f"[resource {resource.uri}]\n{line}"
        case _:
            assert_never(block.type)


class OfferedTools:
    """The usable tools of a server whose definition the operator has agreed to.

    `tools` is the same object for as long as they are the same. `withheld` are those that wait
    for the operator, by their names here.
    """

    def __init__(self, spec: ServerSpec, pins: Pins, caller: McpCaller) -> None:
        self.tools: tuple[McpTool, ...] = ()
        self.withheld: dict[str, Why] = {}
        self._spec = spec
        self._pins = pins
        self._pin = pin_name(spec.server.name, spec.identity)
        self._caller = caller
        self.seen: Sequence[ToolDefinition] = ()
        self._stamp: object = None
        self._by_name: dict[str, McpTool] = {}
        self._skips: set[str] = set()

    def has(self, tool: McpTool) -> bool:
        return self._by_name.get(tool.remote_name) is tool

    def refusal(self, name: str) -> str | None:
        return withheld_text(name) if name in self.withheld else None

    async def take(self, definitions: Sequence[ToolDefinition]) -> None:
        """The server has these tools now.

        Raises:
            ConfigurationError: the pins cannot be read.
        """
        self.seen = definitions
        await self.judge()

    async def look_at_pins(self) -> None:
        """Judge again if the pins have changed."""
        if self._pins.stamp() != self._stamp:
            await self.judge()

    async def judge(self) -> None:
        seen = self.seen
        digests = self._digests(seen)
        takes_new = self._spec.server.is_trusted
        withheld = await asyncio.to_thread(
            self._pins.judge, self._pin, digests, takes_new=takes_new
        )
        self._stamp = self._pins.stamp()
        if seen is self.seen:
            self._put(digests, withheld)

    def _digests(self, seen: Sequence[ToolDefinition]) -> dict[str, str]:
        digests: dict[str, str] = {}
        for definition in seen:
            if definition.runs_as_task_only:
                self._skip(definition.name, "it runs as a task only, which is not done here")
                continue
            try:
                digests.setdefault(definition.name, definition.digest(self._spec.identity))
            except (InvalidInput, RecursionError):
                self._skip(definition.name, "its definition is no JSON, or nested too deep")
        return digests

    def _put(self, digests: Mapping[str, str], withheld: Mapping[str, Why]) -> None:
        names = offered_names(self._spec.server, digests)
        tools: dict[str, McpTool] = {}
        for definition in self.seen:
            name = definition.name
            if name not in digests or name in withheld or name in tools:
                continue
            kept = self._by_name.get(name)
            if kept is not None and (kept.digest, kept.spec.name) == (digests[name], names[name]):
                tools[name] = kept
                continue
            try:
                tools[name] = McpTool(self._spec, names[name], definition, self._caller)
            except UnusableSchema as error:
                self._skip(name, str(error))
        self._by_name = tools
        if tuple(tools.values()) != self.tools:
            self.tools = tuple(tools.values())
        self._report(names, withheld)

    def _report(self, names: Mapping[str, str], withheld: Mapping[str, Why]) -> None:
        server = self._spec.server.name
        for tool, why in withheld.items():
            if names[tool] not in self.withheld:
                logger.warning(
                    "tool_definition_changed", extra={"server": server, "tool": tool, "why": why}
                )
        self.withheld = {names[tool]: why for tool, why in withheld.items()}
        for tool in self._spec.server.tool_governance_overrides.keys() - names.keys():
            self._skip(tool, "tool_governance_overrides names it, but the server has none such")

    def _skip(self, tool: str, why: str) -> None:
        """Said once."""
        if tool not in self._skips:
            self._skips.add(tool)
            logger.warning(
                "mcp tool is not usable",
                extra={"server": self._spec.server.name, "tool": tool[:100], "reason": why},
            )


def withheld_text(name: str) -> str:
    return (
        f"The definition of {name} has changed since it was agreed to (tool_definition_changed). "
        "It does not run until the operator has agreed to the new one."
    )
