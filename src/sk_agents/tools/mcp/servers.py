"""MCP servers of a process: one connection each, whichever agents use them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sk_agents.config.settings import environment
from sk_agents.tools.mcp.config import ServerSpec, read_mcp_servers
from sk_agents.tools.mcp.connection import CONNECT_SECONDS, McpConnection
from sk_agents.tools.mcp.pins import Pins, Withheld
from sk_agents.tools.member import Tool

logger = logging.getLogger(__name__)

# How long start-up waits for servers to come up; those that need longer come later.
START_SECONDS = 10.0


class McpSource:
    """The tools of those servers that one agent names."""

    def __init__(self, connections: Sequence[McpConnection]) -> None:
        self._connections = tuple(connections)
        self.prefixes = tuple(one.spec.server.prefix for one in self._connections)
        self._offers: tuple[Sequence[Tool], ...] = ()
        self._tools: tuple[Tool, ...] = ()

    def tools(self) -> Sequence[Tool]:
        offers = tuple([connection.offer.tools for connection in self._connections])
        if offers != self._offers:
            self._offers = offers
            self._tools = tuple(tool for offer in offers for tool in offer)
        return self._tools

    def refusal(self, name: str) -> str | None:
        for connection in self._connections:
            if reason := connection.offer.refusal(name):
                return reason
        return None


class McpServers:
    """Entered once per process. Nothing is connected before, and nothing imported for no server."""

    def __init__(
        self,
        pins: Pins | None = None,
        *,
        start_seconds: float = START_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        self.pins = pins or Pins()
        self._start_seconds = start_seconds
        self._connect_seconds = connect_seconds
        self._connections: dict[str, McpConnection] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def source(
        self, entries: Sequence[Mapping[str, Any]], *, agent_file: Path, field: str
    ) -> McpSource:
        """The tools of the servers that stand in an agent's `mcp_servers`.

        Raises:
            ConfigurationError: an entry cannot be used: file and field.
        """
        specs = read_mcp_servers(
            entries,
            path=agent_file,
            field_name=field,
            environ=environment([agent_file]) if entries else {},
        )
        return McpSource([self._connection(spec) for spec in specs])

    def _connection(self, spec: ServerSpec) -> McpConnection:
        if spec.key not in self._connections:
            self._connections[spec.key] = McpConnection(
                spec, self.pins, connect_seconds=self._connect_seconds
            )
        return self._connections[spec.key]

    async def __aenter__(self) -> Self:
        """Returns when every server was reached or not, but soon.

        Raises:
            ConfigurationError: the agreed definitions cannot be read.
        """
        if self._connections:
            await asyncio.to_thread(self.pins.check)
            self._tasks = [asyncio.create_task(one.run()) for one in self._connections.values()]
            waiting = [asyncio.ensure_future(c.tried.wait()) for c in self._connections.values()]
            _, late = await asyncio.wait(waiting, timeout=self._start_seconds)
            for task in late:
                task.cancel()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for connection in self._connections.values():
            connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    @property
    def is_used(self) -> bool:
        return bool(self._connections)

    def statuses(self) -> list[dict[str, Any]]:
        """Of each server, for health reports: whether it is up, and what is withheld."""
        return [
            {
                "server": one.spec.server.name,
                "status": one.status,
                "reason": one.reason,
                "tools": len(one.offer.tools),
                "withheld": len(one.offer.withheld),
            }
            for one in self._connections.values()
        ]

    async def repin(self, server: str, tool: str | None = None) -> list[Withheld]:
        """Agree to changed definitions, as `Pins.repin`; they are offered when this returns."""
        agreed = await asyncio.to_thread(self.pins.repin, server, tool)
        for connection in self._connections.values():
            await connection.offer.judge()
        return agreed
