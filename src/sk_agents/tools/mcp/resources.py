"""Resources of an MCP server as tools: the model lists and reads what a server has to read.

A server that has none offers none of them. Listing tells a server nothing, so it may always run;
an address may say anything, so reading one is asked about like every tool of such a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolContext, ToolResult
from sk_agents.tools.base_tool import Tool, ToolStream, tool_spec
from sk_agents.tools.json_schema import ArgumentSchema
from sk_agents.tools.mcp.config import ServerSpec
from sk_agents.tools.mcp.tools import as_tool_result, offered_names

if TYPE_CHECKING:
    import mcp_types

MOST_DESCRIPTION = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")

Kind = Literal["list_resources", "list_resource_templates", "read_resource"]

_URI = {"type": "string", "minLength": 1, "maxLength": 2048}
_DESCRIPTIONS: dict[Kind, str] = {
    "list_resources": "List what the server '{server}' has to read, with the address of each.",
    "list_resource_templates": (
        "List patterns of addresses that the server '{server}' can read. Fill in the parts in "
        "braces, then read the address."
    ),
    "read_resource": "Read something that the server '{server}' has, by its address (URI).",
}


class ResourceReader(Protocol):
    """What holds the connection to the server. Those that ask it raise ToolError: the text is for
    the model."""

    async def sign_in(self, user_id: str) -> str | None: ...

    async def resources(self, context: ToolContext) -> Sequence[mcp_types.Resource]: ...

    async def templates(self, context: ToolContext) -> Sequence[mcp_types.ResourceTemplate]: ...

    async def read(self, uri: str, context: ToolContext) -> mcp_types.CallToolResult:
        """The contents, as a tool would return them."""
        ...


class ResourceTool(Tool):
    def __init__(self, spec: ServerSpec, kind: Kind, name: str, reader: ResourceReader) -> None:
        server = spec.server
        self.origin = f"MCP server '{server.name}': {kind}"
        self.kind = kind
        self._reader = reader
        reads = kind == "read_resource"
        self._arguments = ArgumentSchema(
            {"type": "object", "properties": {"uri": _URI}, "required": ["uri"]}
            if reads
            else {"type": "object", "properties": {}}
        )
        is_harmless = server.is_trusted or not reads
        made = tool_spec(
            name=name,
            description=_DESCRIPTIONS[kind].format(server=server.name),
            parameters=self._arguments.schema,
            origin=self.origin,
            effect=Effect.READ_ONLY if is_harmless else Effect.AT_MOST_ONCE,
            timeout=server.request_timeout,
        )
        # What was approved for one server must not run at another.
        self.spec = replace(made, definition_digest=digest([made.definition_digest, spec.identity]))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._arguments.check(arguments)

    async def sign_in(self, user_id: str) -> str | None:
        return await self._reader.sign_in(user_id)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        match self.kind:
            case "list_resources":
                text = _listing(map(_Listed.of, await self._reader.resources(context)))
            case "list_resource_templates":
                text = _listing(map(_Listed.of, await self._reader.templates(context)))
            case "read_resource":
                yield as_tool_result(await self._reader.read(arguments["uri"], context))
                return
        yield ToolResult(text)


def kinds_of(
    resources: Sequence[mcp_types.Resource], templates: Sequence[mcp_types.ResourceTemplate]
) -> tuple[Kind, ...]:
    """What can be done with what a server has."""
    kinds: list[Kind] = []
    if resources:
        kinds.append("list_resources")
    if templates:
        kinds.append("list_resource_templates")
    return (*kinds, "read_resource") if kinds else ()


class JoinedTools:
    """A server's own tools and those for its resources; one tuple while both stay the same."""

    def __init__(self) -> None:
        self._joined: tuple[tuple[Tool, ...], tuple[Tool, ...], tuple[Tool, ...]] = ((), (), ())

    def of(self, own: tuple[Tool, ...], more: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """A tool for resources gives way to one of the server's own of that name."""
        if self._joined[0] is not own or self._joined[1] is not more:
            taken = {tool.spec.name for tool in own}
            free = (tool for tool in more if tool.spec.name not in taken)
            self._joined = own, more, (*own, *free)
        return self._joined[2]


def resource_tools(
    spec: ServerSpec, kinds: Sequence[Kind], reader: ResourceReader
) -> tuple[ResourceTool, ...]:
    names = offered_names(spec.server, kinds)
    return tuple(ResourceTool(spec, kind, names[kind], reader) for kind in kinds)


@dataclass(frozen=True, slots=True)
class _Listed:
    address: str
    name: str
    kind: str
    about: str

    @classmethod
    def of(cls, one: mcp_types.Resource | mcp_types.ResourceTemplate) -> _Listed:
        address: str = one.uri if hasattr(one, "uri") else one.uri_template
        return cls(address, one.title or one.name, one.mime_type or "", one.description or "")


def _listing(found: Iterable[_Listed]) -> str:
    lines = []
    for one in found:
        kind = f", {one.kind}" if one.kind else ""
        about = f": {one.about[:MOST_DESCRIPTION]}" if one.about else ""
        lines.append(_CONTROL.sub(" ", f"{one.address} ({one.name}{kind}){about}"))
    return "\n".join(lines) or "(There are none.)"
