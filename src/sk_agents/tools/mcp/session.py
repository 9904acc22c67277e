"""One session with one MCP server. Only this file and `oauth` import the MCP library, by its
public names.

It is imported with the first server that is configured: the library takes a third of a second. What
a server may ask of us is in `_Callbacks`. What it sends is bounded in size. The library's own
transport for programs reads lines of any length, so there is another one here: a message that is
too long ends the session; a line that is no message, such as a banner, is skipped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import quote, urlsplit

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, ValidationError
from pydantic_core import to_json

from sk_agents import __version__
from sk_agents.engine.models import Message
from sk_agents.engine.turns import Completed, Completion
from sk_agents.exceptions import ToolError
from sk_agents.outbound.network import Network
from sk_agents.outbound.problems import connection_problem
from sk_agents.tools.mcp.calls import (
    CURRENT_CALL,
    LiveCall,
    ServerRefused,
    SessionLost,
    SessionUnknown,
)
from sk_agents.tools.mcp.checked_transport import (
    LOOPBACK,
    MOST_BYTES,
    BoundedStream,
    proxy_of,
    refuse_compressed,
)
from sk_agents.tools.mcp.config import McpServer, ServerSpec

logger = logging.getLogger(__name__)

MOST_LISTED = 512
MOST_PAGES = 32
MOST_OF_A_PLACE = 100
# How the library begins its own errors where no answer came. Their code, -32000, is also what
# many servers give to any error of theirs: that is an answer.
UNANSWERED = ("Connection closed", "SSE stream ")

# Of these it is certain that no byte of the request has left.
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# Left as it is in a user's id; the rest is percent-encoded, since a header is ASCII.
_PLAIN = "!#$&'()*+,/:;=?@[] "
MOST_LOGGED = 500
# Lines that are no messages are logged so often for each connection.
MOST_STRAY_LINES = 3
# What is kept of a program's last words, and how long its exit code is waited for.
LAST_LINES = 3
MOST_LAST_WORDS = 300
EXIT_SECONDS = 1.0
# How long a server may take to end once its input is closed, and after each signal.
LEAVE_SECONDS = 2.0
LOOK_SECONDS = 0.01

# A server's own log messages are passed on so often in this time.
MOST_LOG_MESSAGES = 50
LOG_SECONDS = 60.0
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
}

LIST_CHANGES = (
    types.ToolListChangedNotification,
    types.ResourceListChangedNotification,
    types.PromptListChangedNotification,
)
# A page that a server wants opened, in the words of the question about it.
OPENED, NOT_OPENED = "I have opened it", "do not open it"
MOST_URL = 2_000

# What a server is told with the reason when it does not get a model's answer: the number is that of
# the protocol's own examples.
NOT_SAMPLED = -1
_STOP_REASONS = {"stop": "endTurn", "length": "maxTokens"}

T = TypeVar("T")

Ended = Callable[[str], None]
_Sent = tuple[LiveCall | None, SessionMessage]
_Inbound = MemoryObjectSendStream[SessionMessage | Exception]


class SessionListener(Protocol):
    """What is called when something happens in a session."""

    def broken(self, reason: str) -> None: ...

    def failed(self, reason: str) -> None:
        """A request did not get through; the session may go on."""
        ...

    def says(self, line: str) -> None:
        """What the server's program writes for its operator, without secrets."""
        ...

    def lists_changed(self) -> None:
        """The server has other tools, resources or prompts than before."""
        ...

    def only_call(self) -> LiveCall | None:
        """The call under way, if there is exactly one."""
        ...

    def roots(self, call: LiveCall | None) -> Sequence[Path]:
        """The folders that the server may work in, for the user whose call it is."""
        ...


class McpSession:
    """An open session."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tools(self) -> list[types.Tool]:
        """All tools the server has.

        Raises:
            ServerRefused: too many, or the list has no end or makes no sense.
            SessionLost: it ended.
        """
        return await _all_pages(self._client.list_tools, lambda page: page.tools, "tools")

    async def resources(self) -> list[types.Resource]:
        """Those that it lists. Raises as `tools`, and ToolError: it refused."""
        if not self._has_resources:
            return []
        return await self._listed(
            self._client.list_resources, lambda page: page.resources, "resources"
        )

    async def templates(self) -> list[types.ResourceTemplate]:
        """What addresses of further resources are made of. Raises as `resources`."""
        if not self._has_resources:
            return []
        return await self._listed(
            self._client.list_resource_templates,
            lambda page: page.resource_templates,
            "resource templates",
        )

    async def prompts(self) -> list[types.Prompt]:
        """Raises as `resources`."""
        if self._client.server_capabilities.prompts is None:
            return []
        return await self._listed(self._client.list_prompts, lambda page: page.prompts, "prompts")

    @property
    def _has_resources(self) -> bool:
        return self._client.server_capabilities.resources is not None

    async def _listed(
        self, list_page: Callable[..., Awaitable[Any]], items: Callable[[Any], list[T]], what: str
    ) -> list[T]:
        try:
            return await _all_pages(list_page, items, what)
        except SessionLost as error:
            cause = error.__cause__
            if isinstance(cause, MCPError) and cause.code == types.METHOD_NOT_FOUND:
                # It has the one kind of list and not the other.
                return []
            raise

    async def read(self, uri: str, *, meta: dict[str, Any]) -> types.ReadResourceResult:
        """What the resource holds. Raises as `call`."""
        return await _answered(self._client.read_resource(uri, meta=_meta(meta)), uri)

    async def prompt(
        self, name: str, arguments: dict[str, str], *, meta: dict[str, Any]
    ) -> types.GetPromptResult:
        """The prompt, filled in. Raises as `call`."""
        return await _answered(self._client.get_prompt(name, arguments, meta=_meta(meta)), name)

    async def call(
        self, name: str, arguments: dict[str, Any], *, meta: dict[str, Any], progress: ProgressFnT
    ) -> types.CallToolResult:
        """What the tool returned.

        Raises:
            SessionUnknown: the server did not take the call.
            SessionLost: it ended; if the call was sent, it is not known what the tool did.
            ToolError: the server refused the call, or answered something else than it promised.
        """
        return await _answered(
            self._client.call_tool(name, arguments, progress_callback=progress, meta=_meta(meta)),
            name,
        )

    async def set_log_level(self, level: types.LoggingLevel) -> None:
        """What the server is to report of itself; newer ones are asked with each request."""
        if self._client.server_capabilities.logging is None:
            return
        if self._client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
        with suppress(MCPError):
            await self._client.session.send_request(request, types.EmptyResult)

    async def follow(self, listener: SessionListener) -> None:
        """Pass changes on until the server ends its stream; older servers send them unasked."""
        can = self._client.server_capabilities
        tools, resources, prompts = (
            one is not None and one.list_changed is True
            for one in (can.tools, can.resources, can.prompts)
        )
        if not (tools or resources or prompts):
            return
        try:
            async with self._client.listen(
                tools_list_changed=tools,
                resources_list_changed=resources,
                prompts_list_changed=prompts,
            ) as changes:
                async for _ in changes:
                    listener.lists_changed()
        except (ListenNotSupportedError, MCPError):
            return
        except SubscriptionLost:
            listener.broken("the server's stream of changes ended")


async def _all_pages(
    list_page: Callable[..., Awaitable[Any]], items: Callable[[Any], list[T]], what: str
) -> list[T]:
    """Raises as `McpSession.tools`."""
    found: list[T] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        try:
            page = await list_page(cursor=cursor)
        except MCPError as error:
            raise SessionLost(error.message) from error
        except ValueError as error:
            raise ServerRefused(f"a list that breaks the protocol{_where(error)}") from error
        found += items(page)
        if len(found) > MOST_LISTED:
            raise ServerRefused(f"more than {MOST_LISTED} {what}")
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise ServerRefused(f"a list of more than {MOST_PAGES} pages")


def _where(error: ValueError) -> str:
    """The first place that the library does not take, for those who can mend the server."""
    if not isinstance(error, ValidationError):
        return ""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f": {place[:MOST_OF_A_PLACE]}: {first['msg'][:MOST_OF_A_PLACE]}"


async def _answered(answer: Awaitable[T], name: str) -> T:
    """Raises as `McpSession.call`."""
    try:
        return await answer
    except MCPError as error:
        call = CURRENT_CALL.get()
        if call is not None and call.is_disowned:
            raise SessionUnknown(error.message) from error
        if error.code == types.CONNECTION_CLOSED and error.message.startswith(UNANSWERED):
            raise SessionLost(error.message) from error
        if call is not None and call.refusal == error.message:
            raise ToolError(f"The server got no answer of the model: {call.refusal}") from error
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


def as_tool_result(read: types.ReadResourceResult) -> types.CallToolResult:
    """What a resource holds, as a tool would return it."""
    return types.CallToolResult(
        content=[
            types.EmbeddedResource(type="resource", resource=content) for content in read.contents
        ]
    )


def _meta(meta: dict[str, Any]) -> types.RequestParamsMeta:
    made: types.RequestParamsMeta = {}
    made.update(meta)  # type: ignore[typeddict-item]  # its keys are open
    return made


@asynccontextmanager
async def open_session(
    spec: ServerSpec,
    listener: SessionListener,
    network: Network,
    auth: httpx2.Auth | None = None,
) -> AsyncGenerator[McpSession]:
    """Connect in the newest way the server knows.

    Raises:
        Exception: whatever the library raises; nothing is left open.
    """
    server = spec.server
    callbacks = _Callbacks(server.name, listener)
    transport: Transport
    match server.transport:
        case "stdio":
            transport = stdio_transport(server, spec.folder, listener.broken, listener.says)
        case "http":
            transport = http_transport(server, network, listener.failed, auth)
        case "sse":
            transport = sse_transport(server, network, listener.failed, auth)
    client = Client(
        transport,
        # The newer ways of speaking need the newer way over HTTP.
        mode="legacy" if server.transport == "sse" else server.mode,
        client_info=types.Implementation(name="teal-agents", version=__version__),
        elicitation_callback=callbacks.elicit,
        sampling_callback=callbacks.sample if server.sampling == "ask" else None,
        list_roots_callback=callbacks.roots if spec.workspaces is not None else None,
        logging_callback=callbacks.log,
        log_level=server.log_level,
        message_handler=callbacks.notice,
        cache=None,
    )
    async with client:
        session = McpSession(client)
        await session.set_log_level(server.log_level)
        yield session


class _Callbacks:
    """What a server may ask of us, or tell us."""

    def __init__(self, server: str, listener: SessionListener) -> None:
        self._server = server
        self._listener = listener
        self._log_began = 0.0
        self._log_count = 0

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        """A question to the user whose call this is; none where that is not certain."""
        call = CURRENT_CALL.get() or self._listener.only_call()
        if call is None:
            logger.warning("mcp question declined", extra={"server": self._server})
            return types.ElicitResult(action="decline")
        if isinstance(params, types.ElicitRequestURLParams):
            return await self._send_to_page(call, params)
        answer = await call.ask(params.message, params.requested_schema)
        if answer is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=answer)

    async def _send_to_page(
        self, call: LiveCall, params: types.ElicitRequestURLParams
    ) -> types.ElicitResult:
        """The user opens the page themselves, or does not; nothing here ever does."""
        parts = urlsplit(params.url)
        if parts.scheme != "https" and parts.hostname not in LOOPBACK:
            logger.warning("mcp page not shown: not https", extra={"server": self._server})
            return types.ElicitResult(action="decline")
        chosen = await call.choose(
            f"The MCP server '{self._server}' asks you to open a page at {parts.hostname}: "
            f"{params.message[:MOST_LOGGED]}\n{params.url[:MOST_URL]}",
            OPENED,
            NOT_OPENED,
        )
        return types.ElicitResult(action="accept" if chosen == OPENED else "decline")

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """The model's answer, if the user whose call this is allows it to be asked."""
        call = CURRENT_CALL.get() or self._listener.only_call()
        try:
            if call is None:
                raise ToolError("It is not certain whose call this belongs to.")
            completed = await call.complete(_completion(self._server, params))
        except ToolError as error:
            extra = {"server": self._server, "reason": str(error)[:MOST_LOGGED]}
            logger.info("mcp server gets no answer of the model", extra=extra)
            if call is not None:
                call.refusal = str(error)
            return types.ErrorData(code=NOT_SAMPLED, message=str(error))
        return _sampled(completed, params.stop_sequences or ())

    async def roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        call = CURRENT_CALL.get() or self._listener.only_call()
        folders = self._listener.roots(call)
        return types.ListRootsResult(
            roots=[types.Root(uri=FileUrl(folder.as_uri()), name="workspace") for folder in folders]
        )

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._log_began > LOG_SECONDS:
            self._log_began, self._log_count = now, 0
        self._log_count += 1
        if self._log_count > MOST_LOG_MESSAGES:
            return
        text = params.data if isinstance(params.data, str) else to_json(params.data).decode()
        logger.log(
            _LEVELS.get(params.level, logging.ERROR),
            "mcp server logs",
            extra={
                "server": self._server,
                "line": text[:MOST_LOGGED],
                "logger_name": (params.logger or "")[:100],
            },
        )

    async def notice(self, message: IncomingMessage) -> None:
        if isinstance(message, LIST_CHANGES):
            self._listener.lists_changed()
        elif isinstance(message, Exception):
            self._listener.broken("a message that cannot be read")


def _completion(server: str, params: types.CreateMessageRequestParams) -> Completion:
    """Raises ToolError: it cannot be shown and sent as it is."""
    if params.tools:
        raise ToolError("The model cannot be given tools of the server.")
    if params.max_tokens < 1:
        raise ToolError("maxTokens must be at least 1.")
    messages = (
        [Message(role="system", content=params.system_prompt)] if params.system_prompt else []
    )
    for message in params.messages:
        texts = [one.text for one in message.content_as_list if isinstance(one, types.TextContent)]
        if len(texts) < len(message.content_as_list):
            raise ToolError("Only texts can be sent to the model.")
        messages.append(Message(role=message.role, content="\n".join(texts)))
    return Completion(
        f"The MCP server '{server}'", tuple(messages), params.max_tokens, params.temperature
    )


def _sampled(completed: Completed, stops: Iterable[str]) -> types.CreateMessageResult:
    """The answer as far as the first of the sequences at which the server wants it to end."""
    ends = [place for stop in stops if stop and (place := completed.text.find(stop)) >= 0]
    reason = "stopSequence" if ends else _STOP_REASONS.get(completed.finish_reason)
    return types.CreateMessageResult(
        role="assistant",
        content=types.TextContent(type="text", text=completed.text[: min(ends, default=None)]),
        model=completed.model or "unnamed",
        stop_reason=reason or completed.finish_reason,
    )


@asynccontextmanager
async def http_transport(
    server: McpServer, network: Network, failed: Ended, auth: httpx2.Auth | None = None
) -> AsyncGenerator[Any]:
    """Yields the library's pair of streams, whose type has no public name."""
    assert server.url is not None
    async with (
        await _http_client(server, network, failed, auth) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=MOST_BYTES
        ) as streams,
    ):
        yield streams


@asynccontextmanager
async def sse_transport(
    server: McpServer, network: Network, failed: Ended, auth: httpx2.Auth | None = None
) -> AsyncGenerator[Any]:
    """The older way over HTTP: one stream of events from the server, and an address to post to."""
    assert server.url is not None
    client = await _http_client(server, network, failed, auth)

    def made(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return client

    async with sse_client(server.url, httpx_client_factory=made) as streams:
        yield streams


async def _http_client(
    server: McpServer, network: Network, failed: Ended, auth: httpx2.Auth | None
) -> httpx2.AsyncClient:
    assert server.url is not None
    header = server.user_id_header

    async def add_user(request: httpx2.Request) -> None:
        call = CURRENT_CALL.get()
        if header is not None and call is not None and call.user is not None:
            request.headers[header] = quote(call.user, safe=_PLAIN)

    context = await network.loaded_context(verify=server.verify_ssl)
    inner = httpx2.AsyncHTTPTransport(verify=context, proxy=proxy_of(network, server.url))
    return httpx2.AsyncClient(
        # What is compressed could be any size.
        headers={**server.headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(server.timeout, read=server.sse_read_timeout),
        # Of the newer way it is the library that bounds events.
        transport=_BoundedTransport(inner, failed, bounds_events=server.transport == "sse"),
        event_hooks={"request": [add_user]},
        auth=auth,
    )


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Whole answers end at a bound; of streams each event has its own."""

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, failed: Ended, *, bounds_events: bool
    ) -> None:
        self._inner = inner
        self._failed = failed
        self._bounds_events = bounds_events

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._sent(request)
        except httpx2.TransportError as error:
            self._failed(_http_problem(error))
            raise
        # A server need not offer the stream that is asked for with GET.
        if response.status_code >= 400 and (request.method, response.status_code) != ("GET", 405):
            phrase = HTTPStatus(response.status_code).phrase if _is_known(response) else ""
            self._failed(f"it answers {response.status_code} {phrase}".strip())
        await refuse_compressed(response)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "")
        if not kind.lower().startswith("text/event-stream"):
            response.stream = BoundedStream(response.stream)
        elif self._bounds_events:
            response.stream = _BoundedEvents(response.stream)
        return response

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        call = CURRENT_CALL.get()
        if call is None:
            return await self._inner.handle_async_request(request)
        before, call.is_sent = call.is_sent, True
        try:
            response = await self._inner.handle_async_request(request)
        except NOT_SENT:
            call.is_sent = before
            raise
        if response.status_code == 404 and MCP_SESSION_ID in request.headers:
            call.is_disowned = True
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _http_problem(error: httpx2.TransportError) -> str:
    if isinstance(error, httpx2.ProxyError):
        return f"the proxy refused: {str(error)[:100]}"
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    return connection_problem(error)


def _is_known(response: httpx2.Response) -> bool:
    return response.status_code in {status.value for status in HTTPStatus}


class _BoundedEvents(BoundedStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._inner:
            # Events end with an empty line; one that does not end is out of bounds.
            size = len(part) if b"\n\n" in part or b"\n\r\n" in part else size + len(part)
            if size > MOST_BYTES:
                raise httpx2.StreamError(f"an event has more than {MOST_BYTES} bytes")
            yield part


class _Outbound:
    """The library's end of the way to a server's input. It sends in the context of the caller, so
    each message is passed on with the call that it belongs to."""

    def __init__(self, queue: MemoryObjectSendStream[_Sent]) -> None:
        self._queue = queue

    async def send(self, item: SessionMessage, /) -> None:
        await self._queue.send((CURRENT_CALL.get(), item))

    async def aclose(self) -> None:
        await self._queue.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


@asynccontextmanager
async def stdio_transport(
    server: McpServer, folder: Path, ended: Ended, says: Callable[[str], None]
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[SessionMessage | Exception], _Outbound]]:
    """`ended` is called with the reason when the connection is over.

    Raises:
        OSError: the program cannot be started.
    """
    process = await _started(server, folder)
    to_us, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    queue, from_us = anyio.create_memory_object_stream[_Sent](0)
    words = _LastWords(server.env.values(), says)
    tasks = [
        asyncio.create_task(_read(process, to_us, ended, words, server.name)),
        asyncio.create_task(_write(process, from_us, ended, words)),
        asyncio.create_task(_log(process, server.name, words)),
    ]
    try:
        yield inbound, _Outbound(queue)
    finally:
        inbound.close()
        queue.close()
        try:
            await _stopped(process)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            to_us.close()
            from_us.close()
            _close(process)


async def _started(server: McpServer, folder: Path) -> Process:
    assert server.command is not None
    environ = get_default_environment() | server.env
    if "PATH" not in server.env:
        # `python` is the one that runs this server, and scripts installed with it are found.
        environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', '')}"
    return await asyncio.create_subprocess_exec(
        _program(server.command, folder, environ["PATH"]),
        *server.args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environ,
        cwd=folder,
        limit=MOST_BYTES,
        start_new_session=True,
    )


def _program(command: str, folder: Path, path: str) -> str:
    """Raises FileNotFoundError: there is none. A relative path begins where the agent file is."""
    if os.sep in command:
        command = str(folder / Path(command).expanduser())
    program = shutil.which(command, path=path)
    if program is None:
        raise FileNotFoundError("no such program")
    return program


class _LastWords:
    """The last lines that a program wrote for its operator, without what its environment hides."""

    def __init__(self, secrets: Iterable[str], says: Callable[[str], None]) -> None:
        self._says = says
        self._secrets = sorted((secret for secret in secrets if len(secret) > 3), key=len)
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self.are_all = asyncio.Event()

    def add(self, line: str) -> None:
        for secret in reversed(self._secrets):
            line = line.replace(secret, "***")
        if line.strip():
            self._lines.append(line.strip())
            self._says(line.strip()[:MOST_LAST_WORDS])

    def __str__(self) -> str:
        return " / ".join(self._lines)[-MOST_LAST_WORDS:]


async def _read(
    process: Process, to_us: _Inbound, ended: Ended, words: _LastWords, name: str
) -> None:
    assert process.stdout is not None
    reason: str | None = None
    strays = 0
    async with to_us:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                try:
                    line = await process.stdout.readline()
                except ValueError:
                    reason = f"a message of more than {MOST_BYTES} bytes"
                    break
                if not line:
                    break
                if not line.strip():
                    continue
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    strays += 1
                    if strays <= MOST_STRAY_LINES:
                        _warn_of_stray(line, name)
                    continue
                await to_us.send(SessionMessage(message))
        ended(reason or await _ending(process, words))


def _warn_of_stray(line: bytes, name: str) -> None:
    text = line.decode(errors="replace").rstrip()[:MOST_LOGGED]
    logger.warning(
        "mcp server writes a line that is no message; its output is for messages, skipped",
        extra={"server": name, "line": text},
    )


async def _ending(process: Process, words: _LastWords) -> str:
    """Why there is no more output, with the exit code if the program has ended."""
    with suppress(TimeoutError):
        async with asyncio.timeout(EXIT_SECONDS):
            await process.wait()
            await words.are_all.wait()
    code = process.returncode
    if code is None:
        reason = "the program closed its input or output"
    elif code < 0:
        reason = f"the program was ended by signal {-code}"
    else:
        reason = f"the program ended with exit code {code}"
    said = str(words)
    return f"{reason}; it wrote: {said}" if said else reason


async def _write(
    process: Process,
    from_us: MemoryObjectReceiveStream[_Sent],
    ended: Ended,
    words: _LastWords,
) -> None:
    assert process.stdin is not None
    try:
        async with from_us:
            async for call, item in from_us:
                if call is not None:
                    call.is_sent = True
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
    except OSError:
        ended(await _ending(process, words))


async def _log(process: Process, name: str, words: _LastWords) -> None:
    """What the server writes for its operator, at debug level."""
    assert process.stderr is not None
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:
            continue
        if not line:
            words.are_all.set()
            return
        text = line.decode(errors="replace").rstrip()[:MOST_LOGGED]
        words.add(text)
        logger.debug("mcp server says", extra={"server": name, "line": text})


async def _stopped(process: Process) -> None:
    """Also if this is cancelled: otherwise the process would stay behind."""
    stopping = asyncio.ensure_future(_stop(process))
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        await asyncio.wait({stopping})
        raise


async def _stop(process: Process) -> None:
    """Close its input, give it a moment, then end it with everything it has started."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    if await _has_left(process):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if await _has_left(process):
            return


async def _has_left(process: Process) -> bool:
    """Not by `wait`, which also waits for every process that has inherited the pipes."""
    for _ in range(int(LEAVE_SECONDS / LOOK_SECONDS)):
        if process.returncode is not None:
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return process.returncode is not None


def _close(process: Process) -> None:
    """The pipes too, which a grandchild may hold open. Nothing public reaches them."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
