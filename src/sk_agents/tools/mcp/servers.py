"""MCP servers of a process: one connection each, whichever agents use them.

A process without such servers imports nothing that they need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeGuard

from sk_agents.config.settings import environment
from sk_agents.exceptions import InvalidInput
from sk_agents.outbound.network import Network
from sk_agents.tools.base_tool import Tool
from sk_agents.tools.mcp.pins import Pins, Withheld
from sk_agents.tools.mcp.sign_ins import SignInRecords

if TYPE_CHECKING:
    from sk_agents.tools.builtin.workspace import Workspaces
    from sk_agents.tools.mcp.accounts import McpAccounts
    from sk_agents.tools.mcp.config import ServerSpec
    from sk_agents.tools.mcp.connection import McpConnection

Connection: TypeAlias = "McpConnection | McpAccounts"

# A program may take longer to start than any call to it.
CONNECT_SECONDS = 30.0
# How long start-up waits for servers to come up; those that need longer come later.
START_SECONDS = 10.0


def has_accounts(one: Connection) -> TypeGuard[McpAccounts]:
    """Whether users sign in there, each for themselves."""
    return one.spec.server.signs_in


class McpSource:
    """The tools of those servers that one agent names."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self.connections = tuple(connections)
        self.prefixes = tuple(one.spec.server.prefix for one in self.connections)
        self._seen: tuple[Sequence[Tool], ...] = ()
        self._tools: tuple[Tool, ...] = ()

    def tools(self) -> Sequence[Tool]:
        seen = tuple([connection.tools for connection in self.connections])
        if seen != self._seen:
            self._seen = seen
            self._tools = tuple(chain.from_iterable(seen))
        return self._tools

    def refusal(self, name: str) -> str | None:
        return next(filter(None, (one.offered.refusal(name) for one in self.connections)), None)

    def connection(self, server: str) -> Connection:
        """Raises InvalidInput: the agent names no such server."""
        for one in self.connections:
            if one.spec.server.name == server:
                return one
        raise InvalidInput("This agent has no MCP server of this name.")


class McpServers:
    """Entered once per process. Nothing is connected before."""

    def __init__(
        self,
        pins: Pins | None = None,
        *,
        start_seconds: float = START_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
        network: Network | None = None,
        records: SignInRecords | None = None,
    ) -> None:
        """`records` keep what users get when they sign in; without them no server may want that."""
        self.records = records
        self.pins = pins or Pins()
        self._network = network or Network()
        self._start_seconds = start_seconds
        self._connect_seconds = connect_seconds
        self._connections: dict[str, Connection] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def source(
        self,
        entries: Sequence[Mapping[str, Any]],
        *,
        agent_file: Path,
        field: str,
        workspaces: Workspaces | None = None,
    ) -> McpSource:
        """The tools of the servers that stand in an agent's `mcp_servers`.

        Raises:
            ConfigurationError: an entry cannot be used: file and field.
        """
        if not entries:
            return McpSource(())
        from sk_agents.tools.mcp.config import read_mcp_servers  # noqa: PLC0415

        specs = read_mcp_servers(
            entries,
            path=agent_file,
            field_name=field,
            environ=environment([agent_file]),
            workspaces=workspaces,
            keeps_tokens=self.records is not None,
        )
        return McpSource([self._connection(spec) for spec in specs])

    def _connection(self, spec: ServerSpec) -> Connection:
        from sk_agents.tools.mcp.accounts import McpAccounts  # noqa: PLC0415
        from sk_agents.tools.mcp.connection import McpConnection  # noqa: PLC0415

        if spec.key not in self._connections:
            made: Connection
            if spec.server.signs_in:
                assert self.records is not None
                made = McpAccounts(
                    spec,
                    self.pins,
                    self._network,
                    self.records,
                    connect_seconds=self._connect_seconds,
                )
            else:
                made = McpConnection(
                    spec, self.pins, self._network, connect_seconds=self._connect_seconds
                )
            self._connections[spec.key] = made
        return self._connections[spec.key]

    def accounts(self, identity: str) -> McpAccounts | None:
        """The server of this identity, if users sign in there."""
        for one in self._connections.values():
            if has_accounts(one) and one.spec.identity == identity:
                return one
        return None

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
    def connections(self) -> list[Connection]:
        return list(self._connections.values())

    @property
    def is_used(self) -> bool:
        return bool(self._connections)

    def addresses(self) -> list[tuple[str, str]]:
        """Names and URLs of the servers that are reached over HTTP."""
        servers = [one.spec.server for one in self._connections.values()]
        return [(server.name, server.url) for server in servers if server.url is not None]

    def statuses(self) -> list[dict[str, Any]]:
        """Of each server, for health reports: whether it is up, and what is withheld."""
        return [
            {
                "server": one.spec.server.name,
                "status": one.status,
                "reason": one.reason,
                "tools": len(one.offered.tools),
                "withheld": len(one.offered.withheld),
                "resources": one.resource_count,
                "prompts": one.prompt_count,
            }
            for one in self._connections.values()
        ]

    async def repin(self, server: str, tool: str | None = None) -> list[Withheld]:
        """Agree to changed definitions, as `Pins.repin`; they are offered when this returns."""
        agreed = await asyncio.to_thread(self.pins.repin, server, tool)
        for connection in self._connections.values():
            await connection.offered.judge()
        return agreed
