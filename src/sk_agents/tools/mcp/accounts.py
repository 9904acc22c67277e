"""An MCP server at which each user signs in: a connection for each user, tools for all of them.

What the server offers is only known once a user has signed in. It is kept, so that the tools of a
server that was used once are offered from the start; before that there is one tool, which signs in.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sk_agents.engine.log.canonical import digest
from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolContext, ToolResult
from sk_agents.exceptions import TealError, ToolError, ToolInterrupted
from sk_agents.outbound.network import Network
from sk_agents.tools.base_tool import Tool, ToolStream, tool_spec
from sk_agents.tools.json_schema import ArgumentSchema
from sk_agents.tools.mcp.config import ServerSpec
from sk_agents.tools.mcp.connection import McpConnection, Status
from sk_agents.tools.mcp.pins import Pins
from sk_agents.tools.mcp.resources import JoinedTools, Kind, ResourceTool, resource_tools
from sk_agents.tools.mcp.sign_ins import SignInRecords
from sk_agents.tools.mcp.tools import (
    McpTool,
    OfferedTools,
    ProgressMessages,
    ToolDefinition,
    offered_names,
)

if TYPE_CHECKING:
    import mcp_types

    from sk_agents.tools.mcp.oauth import OAuth, UserAuth

logger = logging.getLogger(__name__)

# A user's connection is closed when it was not used for so long, or if it is one too many.
IDLE_SECONDS = 600.0
MOST_USERS = 256
SWEEP_SECONDS = 30.0

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Account:
    connection: McpConnection
    auth: UserAuth
    task: asyncio.Task[None]
    used_at: float
    calls: int = 0


class McpAccounts:
    """Stands where `McpConnection` stands for other servers."""

    def __init__(
        self,
        spec: ServerSpec,
        pins: Pins,
        network: Network,
        records: SignInRecords,
        *,
        connect_seconds: float,
    ) -> None:
        self.spec = spec
        self.tried = asyncio.Event()
        self.status: Status = "connecting"
        self.reason: str | None = None
        self.prompt_count = 0
        self.resource_count = 0
        self.offered = _SharedTools(spec, pins, self)
        self._pins = pins
        self._network = network
        self._records = records
        self._connect_seconds = connect_seconds
        self._accounts: dict[str, _Account] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._sign_in = SignInTool(spec, self)
        self._without_tools: tuple[Tool, ...] = (self._sign_in,)
        self._resource_tools: tuple[ResourceTool, ...] = ()
        self._joined = JoinedTools()
        self._saved = ""
        self._news = asyncio.Event()
        self._oauth: OAuth | None = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Those of the server, or the one that signs in while they are not known."""
        return self._joined.of(self.offered.tools, self._resource_tools) or self._without_tools

    @property
    def oauth(self) -> OAuth:
        if self._oauth is None:
            # With the MCP library, which takes a third of a second to import.
            from sk_agents.tools.mcp.oauth import OAuth  # noqa: PLC0415

            self._oauth = OAuth(self.spec, self._records, self._network)
        return self._oauth

    async def run(self) -> None:
        """Until `close` or a cancellation: nothing is connected before a user needs it."""
        self.status = "up"
        self.tried.set()
        try:
            while True:
                await self._load_tools()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SWEEP_SECONDS):
                        await self._news.wait()
                self._news.clear()
                await self._sweep()
        finally:
            for user_id in list(self._accounts):
                await self._end(user_id)

    def close(self) -> None:
        for account in self._accounts.values():
            account.connection.close()

    async def sign_in(self, user_id: str) -> str | None:
        """The server's name if this user must sign in first."""
        signed_in = await self.oauth.is_signed_in(user_id)
        return None if signed_in else self.spec.server.name

    async def call(
        self,
        tool: McpTool,
        arguments: dict[str, Any],
        context: ToolContext,
        progress: ProgressMessages,
    ) -> mcp_types.CallToolResult:
        """As `McpConnection.call`, over this user's connection."""
        return await self._as_user(
            context.user_id, lambda one: one.call(tool, arguments, context, progress)
        )

    async def resources(
        self, context: ToolContext | None = None, *, user: str = ""
    ) -> list[mcp_types.Resource]:
        return await self._as_user(
            _user(context, user), lambda one: one.resources(context, user=user)
        )

    async def templates(
        self, context: ToolContext | None = None, *, user: str = ""
    ) -> list[mcp_types.ResourceTemplate]:
        return await self._as_user(
            _user(context, user), lambda one: one.templates(context, user=user)
        )

    async def prompts(self, *, user: str) -> list[mcp_types.Prompt]:
        return await self._as_user(user, lambda one: one.prompts(user=user))

    async def prompt(
        self, name: str, arguments: dict[str, str], *, user: str
    ) -> mcp_types.GetPromptResult:
        return await self._as_user(user, lambda one: one.prompt(name, arguments, user=user))

    async def contents(
        self, uri: str, context: ToolContext | None = None, *, user: str = ""
    ) -> mcp_types.ReadResourceResult:
        return await self._as_user(
            _user(context, user), lambda one: one.contents(uri, context, user=user)
        )

    async def read(self, uri: str, context: ToolContext) -> mcp_types.CallToolResult:
        return await self._as_user(context.user_id, lambda one: one.read(uri, context))

    async def connect(self, user_id: str) -> list[str]:
        """Learn what the server offers this user; the names of its tools.

        Raises:
            ToolError: the user has not signed in, or the server cannot be reached.
        """

        async def listed(one: McpConnection) -> list[str]:
            await one.prompts(user=user_id)
            return [tool.spec.name for tool in self.tools if tool is not self._sign_in]

        return await self._as_user(user_id, listed)

    async def _as_user(self, user_id: str, ask: Callable[[McpConnection], Awaitable[T]]) -> T:
        account = await self._account(user_id)
        account.calls += 1
        try:
            return await ask(account.connection)
        except ToolInterrupted:
            raise
        except ToolError as error:
            if account.auth.is_refused:
                await self._end(user_id)
                raise ToolError(self._signed_out()) from error
            raise
        finally:
            account.calls -= 1
            account.used_at = _now()
            self._learn(account.connection)

    async def _account(self, user_id: str) -> _Account:
        """Raises ToolError: the user must sign in."""
        lock = self._opening.setdefault(user_id, asyncio.Lock())
        async with lock:
            found = self._accounts.get(user_id)
            if found is not None and not found.auth.is_refused:
                return found
            if found is not None:
                await self._end(user_id)
            if not await self.oauth.is_signed_in(user_id):
                raise ToolError(self._signed_out())
            if len(self._accounts) >= MOST_USERS:
                await self._make_room()
            made = self._accounts[user_id] = self._opened(user_id)
            return made

    def _opened(self, user_id: str) -> _Account:
        from sk_agents.tools.mcp.oauth import UserAuth  # noqa: PLC0415

        auth = UserAuth(self.oauth, user_id)
        connection = McpConnection(
            self.spec,
            self._pins,
            self._network,
            connect_seconds=self._connect_seconds,
            auth=auth,
            offered=self.offered,
        )
        return _Account(connection, auth, asyncio.create_task(connection.run()), _now())

    def _learn(self, connection: McpConnection) -> None:
        """What this user's connection knows of the server is true for all."""
        self.status, self.reason = connection.status, connection.reason
        if not connection.is_up:
            return
        self.prompt_count = connection.prompt_count
        self.resource_count = connection.resource_count
        kinds = connection.resource_kinds
        if kinds != tuple(tool.kind for tool in self._resource_tools):
            self._put_resource_tools(kinds)
        if self._document() != self._saved:
            self._news.set()

    def _put_resource_tools(self, kinds: Sequence[Kind]) -> None:
        self._resource_tools = resource_tools(self.spec, kinds, self)

    async def _load_tools(self) -> None:
        """Take over what is kept, and keep what is new. Other instances learn, too."""
        name = f"tools\0{self.spec.identity}"
        try:
            kept = await self._records.text(name)
            if kept is not None and kept != self._saved:
                self._saved = kept
                document = json.loads(kept)
                await self.offered.take([ToolDefinition(**one) for one in document["tools"]])
                self._put_resource_tools(document["resources"])
                return
            known = self._document()
            if known is not None and known != self._saved:
                await self._records.set_text(name, known)
                self._saved = known
        except (TealError, ValueError, TypeError, KeyError) as error:
            logger.warning(
                "mcp tools cannot be kept",
                extra={"server": self.spec.server.name, "error": type(error).__name__},
            )

    def _document(self) -> str | None:
        tools = [asdict(one) for one in self.offered.seen]
        kinds = [tool.kind for tool in self._resource_tools]
        if not tools and not kinds:
            return None
        return json.dumps({"tools": tools, "resources": kinds}, sort_keys=True)

    async def _sweep(self) -> None:
        late = _now() - IDLE_SECONDS
        for user_id, account in list(self._accounts.items()):
            if not account.calls and account.used_at < late:
                await self._end(user_id)

    async def _make_room(self) -> None:
        """Raises ToolError: all connections are in use."""
        idle = [(a.used_at, user_id) for user_id, a in self._accounts.items() if not a.calls]
        if not idle:
            raise ToolError("Too many users use this server now. Nothing was run.")
        await self._end(min(idle)[1])

    async def end(self, user_id: str) -> None:
        """The user has signed out, or in again: what was open is of the past."""
        await self._end(user_id)

    async def _end(self, user_id: str) -> None:
        account = self._accounts.pop(user_id, None)
        if account is not None:
            account.connection.close()
            account.task.cancel()
            await asyncio.gather(account.task, return_exceptions=True)

    def _signed_out(self) -> str:
        name = self.spec.server.name
        return f"The user is not signed in to '{name}'. Nothing was run. Call it again to ask them."


class SignInTool(Tool):
    """Offered while nothing is known of a server: its use is that the user is asked to sign in."""

    def __init__(self, spec: ServerSpec, accounts: McpAccounts) -> None:
        server = spec.server
        self.origin = f"MCP server '{server.name}': sign_in"
        self._accounts = accounts
        self._arguments = ArgumentSchema({"type": "object", "properties": {}})
        (name,) = offered_names(server, ["sign_in"]).values()
        made = tool_spec(
            name=name,
            description=(
                f"Sign the user in to '{server.name}', whose tools can be used after that. Call it "
                "if what the user wants may be found there."
            ),
            parameters=self._arguments.schema,
            origin=self.origin,
            effect=Effect.READ_ONLY,
            timeout=server.request_timeout,
        )
        self.spec = replace(made, definition_digest=digest([made.definition_digest, spec.identity]))

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._arguments.check(arguments)

    async def sign_in(self, user_id: str) -> str | None:
        return await self._accounts.sign_in(user_id)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolStream:
        names = await self._accounts.connect(context.user_id)
        yield ToolResult(f"The user is signed in. There are these tools now: {', '.join(names)}.")


class _SharedTools(OfferedTools):
    """Users may see different tools: all that any of them has seen are known."""

    async def take(self, definitions: Sequence[ToolDefinition]) -> None:
        known = {one.name: one for one in self.seen}
        known |= {one.name: one for one in definitions}
        await super().take(list(known.values()))


def _user(context: ToolContext | None, user: str) -> str:
    return context.user_id if context is not None else user


def _now() -> float:
    return asyncio.get_running_loop().time()
