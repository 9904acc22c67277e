"""Which of a server's tools are offered: the usable ones whose definition is agreed to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from sk_agents.exceptions import InvalidInput
from sk_agents.tools.mcp.config import ServerSpec
from sk_agents.tools.mcp.pins import Pins, Why, pin_name
from sk_agents.tools.mcp.schema import UnusableSchema
from sk_agents.tools.mcp.tool import Caller, Definition, McpTool, offered_names

logger = logging.getLogger(__name__)


class Offer:
    """`tools` is the same object for as long as they are the same.

    `withheld` are those that are not offered because nobody has agreed to their definition, by
    their names here.
    """

    def __init__(self, spec: ServerSpec, pins: Pins, caller: Caller) -> None:
        self.tools: tuple[McpTool, ...] = ()
        self.withheld: dict[str, Why] = {}
        self._spec = spec
        self._pins = pins
        self._pin = pin_name(spec.server.name, spec.identity)
        self._caller = caller
        self._seen: Sequence[Definition] = ()
        self._stamp: object = None
        self._by_name: dict[str, McpTool] = {}
        self._skips: set[str] = set()

    def has(self, tool: McpTool) -> bool:
        return self._by_name.get(tool.remote_name) is tool

    def refusal(self, name: str) -> str | None:
        return withheld_text(name) if name in self.withheld else None

    async def take(self, definitions: Sequence[Definition]) -> None:
        """The server has these tools now.

        Raises:
            ConfigurationError: the pins cannot be read.
        """
        self._seen = definitions
        await self.judge()

    async def look_at_pins(self) -> None:
        """Judge anew if somebody has changed the pins."""
        if self._pins.stamp() != self._stamp:
            await self.judge()

    async def judge(self) -> None:
        seen = self._seen
        digests = self._digests(seen)
        takes_new = self._spec.server.is_trusted
        withheld = await asyncio.to_thread(
            self._pins.judge, self._pin, digests, takes_new=takes_new
        )
        self._stamp = self._pins.stamp()
        if seen is self._seen:
            self._put(digests, withheld)

    def _digests(self, seen: Sequence[Definition]) -> dict[str, str]:
        digests: dict[str, str] = {}
        for definition in seen:
            try:
                digests.setdefault(definition.name, definition.digest(self._spec.identity))
            except (InvalidInput, RecursionError):
                self._skip(definition.name, "its definition is no JSON, or nested too deep")
        return digests

    def _put(self, digests: Mapping[str, str], withheld: Mapping[str, Why]) -> None:
        names = offered_names(self._spec.server, digests)
        tools: dict[str, McpTool] = {}
        for definition in self._seen:
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
