"""One connection to one MCP server, as the library makes it.

Imported with the first server that is configured: the library takes a third of a second. What a
server may ask of us is decided here: nothing but a question to the user whose call it works on.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import mcp_types as types
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT

from sk_agents import __version__
from sk_agents.exceptions import ToolError
from sk_agents.tools.mcp.calls import CURRENT, LinkLost, LiveCall, ServerRefused, SessionGone
from sk_agents.tools.mcp.config import ServerSpec
from sk_agents.tools.mcp.http import http_transport
from sk_agents.tools.mcp.stdio import stdio_transport

logger = logging.getLogger(__name__)

MOST_TOOLS = 512
MOST_PAGES = 32


class Listener(Protocol):
    """Who wants to know what happens on a connection."""

    def broken(self, reason: str) -> None: ...

    def tools_changed(self) -> None: ...

    def only_call(self) -> LiveCall | None:
        """The call under way, if there is exactly one."""
        ...


class Link:
    """An open connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tools(self) -> list[types.Tool]:
        """All tools the server has.

        Raises:
            ServerRefused: too many, or the list has no end or makes no sense.
            LinkLost: the connection ended.
        """
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            try:
                page = await self._client.list_tools(cursor=cursor)
            except MCPError as error:
                raise LinkLost(error.message) from error
            except ValueError as error:
                raise ServerRefused("a list that breaks the protocol") from error
            found += page.tools
            if len(found) > MOST_TOOLS:
                raise ServerRefused(f"more than {MOST_TOOLS} tools")
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ServerRefused(f"a list of more than {MOST_PAGES} pages")

    async def call(
        self, name: str, arguments: dict[str, Any], *, meta: dict[str, Any], progress: ProgressFnT
    ) -> types.CallToolResult:
        """What the tool returned.

        Raises:
            SessionGone: the server did not take the call.
            LinkLost: the connection ended; if the call was sent, nobody knows what the tool did.
            ToolError: the server refused the call, or answered something else than it promised.
        """
        try:
            return await self._client.call_tool(
                name,
                arguments,
                progress_callback=progress,
                meta=types.RequestParamsMeta(**meta),  # type: ignore[typeddict-item]  # open keys
            )
        except MCPError as error:
            call = CURRENT.get()
            if call is not None and call.is_disowned:
                raise SessionGone(error.message) from error
            if error.code == types.CONNECTION_CLOSED:
                raise LinkLost(error.message) from error
            raise ToolError(f"The server refused the call: {error.message[:500]}") from error
        except (ValueError, RuntimeError) as error:
            # Of the library: a result that is not what the protocol or the tool's schema says.
            logger.warning(
                "mcp result is not usable", extra={"tool": name, "error": type(error).__name__}
            )
            raise ToolError(
                "The server's answer does not make sense. Whether the tool took effect is not "
                "known: check before you repeat it."
            ) from error

    async def follow(self, listener: Listener) -> None:
        """Tell the listener of changes until the server stops telling; older ones tell by
        themselves."""
        tools = self._client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        try:
            async with self._client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    listener.tools_changed()
        except (ListenNotSupportedError, MCPError):
            return
        except SubscriptionLost:
            listener.broken("the server's stream of changes ended")


@asynccontextmanager
async def open_link(spec: ServerSpec, listener: Listener) -> AsyncGenerator[Link]:
    """Connect in the newest way the server knows.

    Raises:
        Exception: whatever the library raises; nothing is left open.
    """
    server = spec.server
    callbacks = _Callbacks(server.name, listener)
    client = Client(
        _transport(spec, listener),
        mode=server.mode,
        client_info=types.Implementation(name="teal-agents", version=__version__),
        elicitation_callback=callbacks.elicit,
        message_handler=callbacks.notice,
        cache=None,
    )
    async with client:
        yield Link(client)


def _transport(spec: ServerSpec, listener: Listener) -> Transport:
    if spec.server.transport == "stdio":
        return stdio_transport(spec.server, spec.folder, listener.broken)
    return http_transport(spec.server)


class _Callbacks:
    def __init__(self, server: str, listener: Listener) -> None:
        self._server = server
        self._listener = listener

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        """A question to the user whose call this is; where that is not certain, to nobody."""
        call = CURRENT.get() or self._listener.only_call()
        if call is None or not isinstance(params, types.ElicitRequestFormParams):
            logger.warning("mcp question declined", extra={"server": self._server})
            return types.ElicitResult(action="decline")
        answer = await call.ask(params.message, params.requested_schema)
        if answer is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=answer)

    async def notice(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._listener.tools_changed()
        elif isinstance(message, Exception):
            self._listener.broken("a message that cannot be read")
