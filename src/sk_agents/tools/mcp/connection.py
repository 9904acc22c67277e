"""A server that is kept in reach: connected, listed, followed, and connected again.

Its tools stay known while it is away: a run in the middle of its work is told that the server
cannot be reached, not that its tools never were.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any, Literal

from sk_agents.engine.models import Effect
from sk_agents.engine.turns import ToolContext
from sk_agents.exceptions import ToolError, ToolInterrupted
from sk_agents.tools.mcp.calls import CURRENT, LinkLost, LiveCall, ServerRefused, SessionGone
from sk_agents.tools.mcp.config import ServerSpec
from sk_agents.tools.mcp.offer import Offer, withheld_text
from sk_agents.tools.mcp.pins import Pins
from sk_agents.tools.mcp.tool import Definition, McpTool, Told

if TYPE_CHECKING:
    import mcp_types

    from sk_agents.tools.mcp.link import Link

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
# A connection that lasted this long was a good one: the next pause is short again.
GOOD_SECONDS = 10.0
# A program may take longer to start than any call to it.
CONNECT_SECONDS = 30.0
# Changes of the list that come faster than this are one change.
DEBOUNCE_SECONDS = 0.5
PINS_SECONDS = 2.0
# How long a call waits for a server that is being connected again, and for its list. It must know
# that nothing was run before the engine has to ask whether something was.
WAIT_SECONDS = 10.0
# How much longer than the engine a call waits whose outcome would be unknown: it is the engine
# that must find out.
MARGIN_SECONDS = 5.0
USER_KEY = "sk-agents/user_id"
IDEMPOTENCY_KEY = "sk-agents/idempotency_key"

Status = Literal["connecting", "up", "down", "refused"]


class McpConnection:
    """Of one process to one server, for all agents that name it."""

    def __init__(
        self, spec: ServerSpec, pins: Pins, *, connect_seconds: float = CONNECT_SECONDS
    ) -> None:
        self.spec = spec
        self._connect_seconds = connect_seconds
        self.status: Status = "connecting"
        self.reason: str | None = None
        self.tried = asyncio.Event()
        """Set once it is known whether the server could be reached."""
        self._patience = min(WAIT_SECONDS, spec.server.request_timeout / 4)
        self._link: Link | None = None
        self._is_up = asyncio.Event()
        self._news = asyncio.Event()
        self._is_broken = False
        self._is_closing = False
        self._has_changed = False
        self._told: tuple[Status, str] | None = None
        self._listing = asyncio.Lock()
        self.offer = Offer(spec, pins, self)
        self._calls: set[LiveCall] = set()

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
                self._gone(*_meaning(error))
            if self._is_closing:
                return
            if clock() - began > GOOD_SECONDS:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = LONGEST_PAUSE if self.status == "refused" else min(pause * 2, LONGEST_PAUSE)

    def close(self) -> None:
        """Before the cancellation, which a connection that just breaks can swallow."""
        self._is_closing = True

    async def call(
        self, tool: McpTool, arguments: dict[str, Any], context: ToolContext, told: Told
    ) -> mcp_types.CallToolResult:
        """What the server answers.

        Raises:
            ToolInterrupted: the connection was lost after the call was sent.
            ToolError: it cannot be reached, its definition has changed, or the call failed.
        """
        link = await self._reached()
        if not self.spec.server.is_trusted:
            # Its word that a list has changed is not waited for.
            await self._check_anew(link)
        if not self.offer.has(tool):
            raise ToolError(withheld_text(tool.spec.name))
        live = self._live(tool, context)
        token = CURRENT.set(live)
        self._calls.add(live)
        try:
            return await self._send(link, tool, arguments, live, told)
        finally:
            self._calls.discard(live)
            CURRENT.reset(token)

    def broken(self, reason: str) -> None:
        if not self._is_broken:
            self._is_broken, self.status, self.reason = True, "down", reason
        self._news.set()

    def tools_changed(self) -> None:
        self._has_changed = True
        self._news.set()

    def only_call(self) -> LiveCall | None:
        return next(iter(self._calls)) if len(self._calls) == 1 else None

    async def _serve(self) -> None:
        # The library takes a third of a second to import, which servers without MCP tools save.
        from sk_agents.tools.mcp.link import open_link  # noqa: PLC0415

        self._is_broken = self._has_changed = False
        self.reason = None
        self._news.clear()
        opening = asyncio.timeout(self._connect_seconds)
        async with opening, open_link(self.spec, self) as link:
            await self._list(link)
            opening.reschedule(None)
            self._came_up(link)
            following = asyncio.create_task(link.follow(self))
            try:
                await self._watch(link)
            finally:
                self._link = None
                self._is_up.clear()
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _watch(self, link: Link) -> None:
        while not self._is_broken:
            try:
                async with asyncio.timeout(PINS_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                await self.offer.look_at_pins()
                continue
            self._news.clear()
            if self._has_changed:
                await asyncio.sleep(DEBOUNCE_SECONDS)
                self._has_changed = False
                async with asyncio.timeout(self.spec.server.request_timeout):
                    await self._list(link)

    async def _list(self, link: Link) -> None:
        async with self._listing:
            tools = await link.tools()
            await self.offer.take([Definition.of(tool) for tool in tools])

    async def _check_anew(self, link: Link) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._list(link)
        except (LinkLost, ServerRefused, TimeoutError) as error:
            self.broken(f"its tools could not be listed: {error}")
            raise ToolError(self._away()) from error

    async def _reached(self) -> Link:
        if self._link is not None and not self._is_broken:
            return self._link
        try:
            async with asyncio.timeout(self._patience):
                while self._link is None or self._is_broken:
                    self._is_up.clear()
                    await self._is_up.wait()
                return self._link
        except TimeoutError:
            raise ToolError(self._away()) from None

    async def _send(
        self, link: Link, tool: McpTool, arguments: dict[str, Any], live: LiveCall, told: Told
    ) -> mcp_types.CallToolResult:
        meta = {IDEMPOTENCY_KEY: live.context.idempotency_key}
        if live.user is not None:
            meta[USER_KEY] = live.user
        live.limit = asyncio.timeout(live.seconds)
        try:
            async with live.limit:
                return await link.call(
                    tool.remote_name, arguments, meta=meta, progress=told.progress
                )
        except LinkLost as error:
            self.broken(str(error))
            if isinstance(error, SessionGone) or not live.is_sent:
                raise ToolError(self._away()) from error
            doubt = " Whether it took effect is not known: check before you repeat it."
            raise ToolInterrupted(
                "The connection to the server was lost while the tool ran."
                + (doubt if tool.spec.effect is not Effect.READ_ONLY else "")
            ) from error
        except TimeoutError:
            raise ToolError(f"The server did not answer within {live.seconds:g} seconds.") from None

    def _live(self, tool: McpTool, context: ToolContext) -> LiveCall:
        server = self.spec.server
        tells = server.user_id_source is not None or server.user_id_header is not None
        user = self.spec.fixed_user or (context.user_id if tells else None)
        harmless = tool.spec.effect is not Effect.AT_MOST_ONCE
        seconds = server.request_timeout + (0 if harmless else MARGIN_SECONDS)
        return LiveCall(server.name, context, seconds, user)

    def _came_up(self, link: Link) -> None:
        self._link, self.status, self.reason, self._told = link, "up", None, None
        self._is_up.set()
        self.tried.set()
        logger.info(
            "mcp server is up",
            extra={"server": self.spec.server.name, "tools": len(self.offer.tools)},
        )

    def _gone(self, status: Status, reason: str) -> None:
        if self._told != (status, reason):
            self._told = status, reason
            logger.warning(
                "mcp server is %s",
                status,
                extra={"server": self.spec.server.name, "reason": reason},
            )
        self.status, self.reason = status, reason
        self.tried.set()

    def _away(self) -> str:
        return f"The MCP server '{self.spec.server.name}' cannot be reached now. Nothing was run."


def _meaning(error: Exception) -> tuple[Status, str]:
    """A status and a reason without anything the server wrote."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ServerRefused):
        return "refused", str(error)
    if isinstance(error, TimeoutError):
        return "down", "no answer in time"
    if isinstance(error, FileNotFoundError):
        return "down", "no such program"
    return "down", type(error).__name__
