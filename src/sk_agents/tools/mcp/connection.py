"""The connection of this process to one MCP server.

A server that goes away is connected again. Its tools stay known in between: a run in the middle of
its work hears that the server cannot be reached, not that its tools never existed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ConfigurationError, ToolError, ToolInterrupted
from sk_agents.outbound.network import Network
from sk_agents.outbound.problems import connection_problem
from sk_agents.tools.base_tool import Tool
from sk_agents.tools.mcp.calls import (
    CURRENT_CALL,
    LiveCall,
    ServerRefused,
    SessionLost,
    SessionUnknown,
)
from sk_agents.tools.mcp.config import ServerSpec
from sk_agents.tools.mcp.pins import Pins
from sk_agents.tools.mcp.resources import JoinedTools, Kind, ResourceTool, kinds_of, resource_tools
from sk_agents.tools.mcp.tools import (
    McpTool,
    OfferedTools,
    ProgressMessages,
    ToolDefinition,
    withheld_text,
)

if TYPE_CHECKING:
    import httpx2
    import mcp_types

    from sk_agents.tools.mcp.session import McpSession

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
# A connection that lasted this long was a good one: the next pause is short again.
GOOD_SECONDS = 10.0
MOST_REASON = 300
# A program that fetches the server first takes as long as the network does.
DOWNLOAD_SECONDS = 300.0
# Changes of the list that come faster than this are one change.
DEBOUNCE_SECONDS = 0.5
PINS_SECONDS = 2.0
# How long a call waits for a server that is being connected again, and for its list. It must know
# that nothing was run before the engine has to ask whether something was.
WAIT_SECONDS = 10.0
# How much longer than the engine a call waits whose outcome would be unknown: the engine must be
# the one that gives up.
MARGIN_SECONDS = 5.0
UNAUTHORIZED = "it answers 401"
USER_KEY = "sk-agents/user_id"
IDEMPOTENCY_KEY = "sk-agents/idempotency_key"

Status = Literal["connecting", "up", "down", "refused"]
T = TypeVar("T")


class McpConnection:
    """The connection of this process to one server, for all agents that name it."""

    def __init__(
        self,
        spec: ServerSpec,
        pins: Pins,
        network: Network,
        *,
        connect_seconds: float,
        auth: httpx2.Auth | None = None,
        offered: OfferedTools | None = None,
    ) -> None:
        """With `auth` it is one user's, and `offered` belongs to all users."""
        self.spec = spec
        self._auth = auth
        self._network = network
        server = spec.server
        usual = DOWNLOAD_SECONDS if server.downloads else connect_seconds
        self._connect_seconds = server.start_timeout or usual
        self.status: Status = "connecting"
        self.reason: str | None = None
        self.tried = asyncio.Event()
        """Set once it is known whether the server could be reached."""
        self._wait_seconds = min(WAIT_SECONDS, spec.server.request_timeout / 4)
        self._session: McpSession | None = None
        self._is_up = asyncio.Event()
        self._news = asyncio.Event()
        self._failure: str | None = None
        self._is_broken = False
        self._is_closing = False
        self._has_changed = False
        self._logged: tuple[Status, str] | None = None
        self._listing = asyncio.Lock()
        self.offered = offered or OfferedTools(spec, pins, self)
        self.prompt_count = 0
        self.resource_count = 0
        self._resource_tools: tuple[ResourceTool, ...] = ()
        self._joined = JoinedTools()
        self._calls: set[LiveCall] = set()

    @property
    def is_up(self) -> bool:
        return self._session is not None and not self._is_broken

    @property
    def resource_kinds(self) -> tuple[Kind, ...]:
        return tuple(tool.kind for tool in self._resource_tools)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The server's own and those for its resources; the same object while they are the same."""
        return self._joined.of(self.offered.tools, self._resource_tools)

    async def run(self) -> None:
        """Keep the server in reach until `close` or a cancellation."""
        pause = FIRST_PAUSE
        clock = asyncio.get_running_loop().time
        while not self._is_closing:
            began = clock()
            try:
                await self._serve()
                self._gone("down", self.reason or "the connection ended")
            except Exception as error:
                # The library, the server and the network may raise anything here.
                self._gone(*self._meaning(error))
            if self._is_closing:
                return
            if clock() - began > GOOD_SECONDS:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = LONGEST_PAUSE if self.status == "refused" else min(pause * 2, LONGEST_PAUSE)

    def close(self) -> None:
        """Before the cancellation, which a connection that breaks in this moment can swallow."""
        self._is_closing = True

    async def sign_in(self, user_id: str) -> str | None:
        return None

    async def call(
        self,
        tool: McpTool,
        arguments: dict[str, Any],
        context: ToolContext,
        progress: ProgressMessages,
    ) -> mcp_types.CallToolResult:
        """What the server answers.

        Raises:
            ToolInterrupted: the connection was lost after the call was sent.
            ToolError: it cannot be reached, its definition has changed, or the call failed.
        """
        session = await self._reached()
        if not self.spec.server.is_trusted:
            # It may not say that its list has changed.
            await self._list_again(session)
        if not self.offered.has(tool):
            raise ToolError(withheld_text(tool.spec.name))
        harmless = tool.spec.effect is not Effect.AT_MOST_ONCE
        live = self._live(context.user_id, context, harmless=harmless)
        meta = self._meta(live)
        doubt = tool.spec.effect is not Effect.READ_ONLY
        return await self._exchange(
            session,
            live,
            lambda: session.call(tool.remote_name, arguments, meta=meta, progress=progress.add),
            doubt=doubt,
        )

    async def resources(
        self, context: ToolContext | None = None, *, user: str = ""
    ) -> list[mcp_types.Resource]:
        """Raises ToolError: it cannot be reached or refuses, for a reader of any kind."""
        return await self._ask(context, user, lambda session, meta: session.resources())

    async def templates(
        self, context: ToolContext | None = None, *, user: str = ""
    ) -> list[mcp_types.ResourceTemplate]:
        return await self._ask(context, user, lambda session, meta: session.templates())

    async def prompts(self, *, user: str) -> list[mcp_types.Prompt]:
        return await self._ask(None, user, lambda session, meta: session.prompts())

    async def prompt(
        self, name: str, arguments: dict[str, str], *, user: str
    ) -> mcp_types.GetPromptResult:
        return await self._ask(
            None, user, lambda session, meta: session.prompt(name, arguments, meta=meta)
        )

    async def contents(
        self, uri: str, context: ToolContext | None = None, *, user: str = ""
    ) -> mcp_types.ReadResourceResult:
        return await self._ask(context, user, lambda session, meta: session.read(uri, meta=meta))

    async def read(self, uri: str, context: ToolContext) -> mcp_types.CallToolResult:
        from sk_agents.tools.mcp.session import as_tool_result  # noqa: PLC0415

        return as_tool_result(await self.contents(uri, context))

    async def _ask(
        self,
        context: ToolContext | None,
        user: str,
        request: Callable[[McpSession, dict[str, Any]], Awaitable[T]],
    ) -> T:
        """What does no harm, in a tool's call or on a user's own behalf."""
        session = await self._reached()
        live = self._live(context.user_id if context is not None else user, context, harmless=True)
        meta = self._meta(live)
        return await self._exchange(session, live, lambda: request(session, meta), doubt=False)

    def broken(self, reason: str) -> None:
        if not self._is_broken:
            self._is_broken, self.status, self.reason = True, "down", reason
        self._news.set()

    def failed(self, reason: str) -> None:
        self._failure = reason

    def says(self, line: str) -> None:
        """What a program writes while it starts, such as how far a download is."""
        if self.status == "connecting":
            self.reason = f"{self.spec.server.command} says: {line}"

    def lists_changed(self) -> None:
        self._has_changed = True
        self._news.set()

    def only_call(self) -> LiveCall | None:
        return next(iter(self._calls)) if len(self._calls) == 1 else None

    def roots(self, call: LiveCall | None) -> Sequence[Path]:
        spaces = self.spec.workspaces
        if spaces is None:
            return []
        if call is not None and call.context is not None:
            return [spaces.folder(call.context)]
        return [spaces.path] if spaces.shared_by == "everyone" else []

    async def _serve(self) -> None:
        # The library takes a third of a second to import, which servers without MCP tools save.
        from sk_agents.tools.mcp.session import open_session  # noqa: PLC0415

        if self.spec.server.downloads and self._session is None and not self.tried.is_set():
            self.reason = f"{self.spec.server.command} is starting, and may be downloading"
            logger.info(
                "mcp server is started by a program that may download it first",
                extra={"server": self.spec.server.name, "seconds": self._connect_seconds},
            )
        self._is_broken = self._has_changed = False
        self._failure = None
        self._news.clear()
        opening = asyncio.timeout(self._connect_seconds)
        async with opening, open_session(self.spec, self, self._network, self._auth) as session:
            await self._look_around(session)
            await self._list(session)
            opening.reschedule(None)
            self._came_up(session)
            following = asyncio.create_task(session.follow(self))
            try:
                await self._watch(session)
            finally:
                self._session = None
                self._is_up.clear()
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _watch(self, session: McpSession) -> None:
        while not self._is_broken:
            try:
                async with asyncio.timeout(PINS_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                await self.offered.look_at_pins()
                continue
            self._news.clear()
            if self._has_changed:
                await asyncio.sleep(DEBOUNCE_SECONDS)
                self._has_changed = False
                async with asyncio.timeout(self.spec.server.request_timeout):
                    await self._look_around(session)
                    await self._list(session)

    async def _list(self, session: McpSession) -> None:
        async with self._listing:
            tools = await session.tools()
            await self.offered.take([ToolDefinition.of(tool) for tool in tools])

    async def _look_around(self, session: McpSession) -> None:
        """What else there is. A server whose further lists are no good still has its tools."""
        try:
            found, templates = await session.resources(), await session.templates()
            self.resource_count = len(found) + len(templates)
            self.prompt_count = len(await session.prompts())
        except (ServerRefused, SessionLost) as error:
            logger.warning(
                "mcp server's resources or prompts cannot be listed",
                extra={"server": self.spec.server.name, "reason": str(error)[:MOST_REASON]},
            )
            return
        kinds = kinds_of(found, templates)
        if kinds != self.resource_kinds:
            self._resource_tools = resource_tools(self.spec, kinds, self)

    async def _list_again(self, session: McpSession) -> None:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._list(session)
        except (SessionLost, ServerRefused, TimeoutError) as error:
            self.broken(f"its tools could not be listed: {error}")
            raise ToolError(self._away()) from error

    async def _reached(self) -> McpSession:
        if self._session is not None and not self._is_broken:
            return self._session
        try:
            async with asyncio.timeout(self._wait_seconds):
                while self._session is None or self._is_broken:
                    self._is_up.clear()
                    await self._is_up.wait()
                return self._session
        except TimeoutError:
            raise ToolError(self._away()) from None

    async def _exchange(
        self,
        session: McpSession,
        live: LiveCall,
        send: Callable[[], Awaitable[T]],
        *,
        doubt: bool,
    ) -> T:
        """Raises as `call`; with `doubt` the text for the model says that it may have run."""
        token = CURRENT_CALL.set(live)
        self._calls.add(live)
        live.limit = asyncio.timeout(live.seconds)
        try:
            async with live.limit:
                return await send()
        except SessionLost as error:
            self.broken(str(error))
            if isinstance(error, SessionUnknown) or not live.is_sent:
                raise ToolError(self._away()) from error
            unknown = " Whether it took effect is not known: check before you repeat it."
            raise ToolInterrupted(
                "The connection to the server was lost while the tool ran."
                + (unknown if doubt else "")
            ) from error
        except ServerRefused as error:
            raise ToolError(f"The server's answer is not usable: {error}.") from error
        except TimeoutError:
            raise ToolError(f"The server did not answer within {live.seconds:g} seconds.") from None
        finally:
            self._calls.discard(live)
            CURRENT_CALL.reset(token)

    def _live(self, user_id: str, context: ToolContext | None, *, harmless: bool) -> LiveCall:
        server = self.spec.server
        sends_user = server.user_id_source is not None or server.user_id_header is not None
        user = self.spec.fixed_user or (user_id if sends_user else None)
        seconds = server.request_timeout + (0 if harmless else MARGIN_SECONDS)
        return LiveCall(server.name, seconds, user, context)

    def _meta(self, live: LiveCall) -> dict[str, Any]:
        meta = {}
        if live.context is not None:
            meta[IDEMPOTENCY_KEY] = live.context.idempotency_key
        if live.user is not None:
            meta[USER_KEY] = live.user
        return meta

    def _came_up(self, session: McpSession) -> None:
        self._session, self.status, self.reason, self._logged = session, "up", None, None
        self._is_up.set()
        self.tried.set()
        logger.info(
            "mcp server is up",
            extra={"server": self.spec.server.name, "tools": len(self.offered.tools)},
        )

    def _gone(self, status: Status, reason: str) -> None:
        if self._logged != (status, reason):
            self._logged = status, reason
            logger.warning(
                "mcp server is %s",
                status,
                extra={"server": self.spec.server.name, "reason": reason},
            )
        self.status, self.reason = status, reason
        self.tried.set()

    def _meaning(self, error: Exception) -> tuple[Status, str]:
        """Its own words if it has some, else what the transport said last."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ServerRefused):
            return "refused", str(error)
        if isinstance(error, TimeoutError):
            return "down", self._failure or "no answer in time"
        if isinstance(error, FileNotFoundError):
            return "down", "no such program"
        if isinstance(error, ConfigurationError):
            return "down", str(error)
        said = self.reason if self._is_broken else self._failure
        if said is not None and said.startswith(UNAUTHORIZED) and self._auth is None:
            said += "; if users are to sign in there, set oauth: true"
        return "down", said or connection_problem(error)

    def _away(self) -> str:
        return f"The MCP server '{self.spec.server.name}' cannot be reached now. Nothing was run."
