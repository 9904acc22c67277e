"""The one way in: what every request passes exactly once, on our server and on any other.

    correlation id -> span and metrics -> host and origin -> route -> endpoint -> error table

There is no middleware besides it. An operator's own, added with `app.add_middleware`, stands around
it; an operator's own routers are reached through it and get the same ids, checks and error bodies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from inspect import isawaitable
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import iter_route_contexts
from fastapi.telemetry import TelemetryConfig
from starlette.datastructures import State
from starlette.exceptions import WebSocketException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sk_agents.http.errors import PROBLEM_JSON, Problem, problem_of
from sk_agents.http.hosts import HostCheck, allow_origin, preflight_answer
from sk_agents.http.ids import RAW_CORRELATION_HEADER, correlation_id_of
from sk_agents.http.operations import Operation, OperationRoute, openapi_document
from sk_agents.http.sse import LIVE_WRITES
from sk_agents.telemetry.logs import logged_with
from sk_agents.telemetry.observers import RequestObserver, ServedRequest

Header = tuple[bytes, bytes]

# What every response says unless it knows better: it is what it says, and not to be kept. Answers
# hold what users said; the files of the page and the streams bring rules of their own.
DEFAULT_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
# Spans, metrics and logs are ours.
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
_TRACE_HEADERS = (b"traceparent", b"tracestate")
_POLICY_VIOLATION = 1008


class _State(State):
    """Starlette's looks for each attribute in two wrong places first: 1 us, six times a request."""

    def __setattr__(self, key: Any, value: Any) -> None:
        object.__setattr__(self, key, value)


class TealApp(FastAPI):
    """FastAPI with the front in the place of its middleware, and a table of operations."""

    def __init__(
        self,
        *,
        hosts: Collection[str] | None = None,
        origins: Collection[str] | None = None,
        requests: RequestObserver | None = None,
        **options: Any,
    ) -> None:
        """`hosts` and `origins` are those of `HostCheck`; `requests` sees every request."""
        super().__init__(
            docs_url=None,
            redoc_url=None,
            # A redirect would drop a body and an Authorization header.
            redirect_slashes=False,
            telemetry=_NO_TELEMETRY,
            **options,
        )
        self.state = _State()
        self._host_check = HostCheck(hosts, origins)
        self._requests = requests
        # FastAPI's own; what an operator adds is asked before our table.
        self.exception_handlers.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As FastAPI's and Starlette's, in one step instead of two: each is entered again whenever
        a request that has waited goes on."""
        if self.middleware_stack is None or scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        if self.root_path:
            scope["root_path"] = self.root_path
        scope["app"] = self
        await self.middleware_stack(scope, receive, send)

    def add_operations(self, operations: Sequence[Operation]) -> None:
        self.router.routes.extend(OperationRoute(operation) for operation in operations)
        self.openapi_schema = None

    @property
    def operations(self) -> list[Operation]:
        return [one.operation for one in self.router.routes if isinstance(one, OperationRoute)]

    @property
    def about(self) -> dict[str, Any]:
        """What every description of this server says: where it is, and whose."""
        return {"servers": self.servers, "contact": self.contact}

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = openapi_document(
                self.routes,
                title=self.title,
                version=self.version,
                description=self.description,
                **self.about,
            )
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = Front(self, self._host_check, self._requests)
        for layer, arguments, options in reversed(self.user_middleware):
            app = layer(app, *arguments, **options)
        return _without_live_writes(app) if self.user_middleware else app


class Front:
    def __init__(
        self, app: FastAPI, host_check: HostCheck, requests: RequestObserver | None
    ) -> None:
        self._app = app
        self._host_check = host_check
        self._requests = requests
        self._framework = AsyncExitStackMiddleware(app.router)
        # Trying 40 routes one after the other took 150 us, more than the rest of the framework.
        self._routes: dict[str, list[OperationRoute]] = {}
        for route in app.router.routes:
            if isinstance(route, OperationRoute):
                self._routes.setdefault(_first_segment(route.path), []).append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._app.router(scope, receive, send)
        elif self._requests is None:
            correlation_id = correlation_id_of(scope)
            with logged_with(correlation_id=correlation_id):
                await self._serve(scope, receive, send, correlation_id, None)
        else:
            method = scope["method"] if kind == "http" else "WEBSOCKET"
            trace = {
                name.decode(): value.decode("latin-1")
                for name, value in scope["headers"]
                if name in _TRACE_HEADERS
            }
            correlation_id = correlation_id_of(scope)
            with self._requests.served(method, trace, correlation_id) as seen:
                try:
                    await self._serve(scope, receive, send, correlation_id, seen)
                finally:
                    seen.route = self._route_path(scope)

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        correlation_id: str,
        seen: ServedRequest | None,
    ) -> None:
        correlation = (RAW_CORRELATION_HEADER, correlation_id.encode())
        origin: str | None = None
        has_started = False

        def send_completed(message: Message) -> Awaitable[None]:
            nonlocal has_started
            kind = message["type"]
            if kind == "http.response.start":
                has_started = True
                message["headers"] = _completed(message.get("headers", ()), correlation)
                if origin is not None:
                    allow_origin(message, origin)
            if seen is not None:
                _note(seen, message)
            return send(message)

        try:
            origin = self._host_check.other_site(scope)
            app = preflight_answer(scope) if origin is not None else None
            await (app or self._endpoint(scope))(scope, receive, send_completed)
        except Exception as error:
            if scope["type"] == "websocket":
                await _close(error, receive, send)
            elif has_started:
                # Cut off, so that what was sent is not taken for the whole.
                raise
            else:
                answer = await self._error_answer(scope, receive, error)
                await answer(scope, receive, send_completed)

    def _endpoint(self, scope: Scope) -> ASGIApp:
        """What answers this request."""
        if scope["type"] == "http":
            path, method = scope["path"].removeprefix(scope.get("root_path", "")), scope["method"]
            for route in self._routes.get(_first_segment(path), ()):
                if route.operation.method == method and (found := route.path_regex.match(path)):
                    scope["route"], scope["endpoint"] = route, route.endpoint
                    scope["path_params"] = found.groupdict()
                    return route.app
        return self._framework

    async def _error_answer(self, scope: Scope, receive: Receive, error: Exception) -> ASGIApp:
        handlers = self._app.exception_handlers
        keys = [*type(error).__mro__, getattr(error, "status_code", None)]
        for handler in (handlers[key] for key in keys if key in handlers):
            answer = handler(Request(scope, receive), error)
            return await answer if isawaitable(answer) else answer
        route = scope.get("route")
        style = route.operation.errors_as if isinstance(route, OperationRoute) else PROBLEM_JSON
        return style.render(scope, problem_of(error, scope))

    def _route_path(self, scope: Scope) -> str | None:
        """The route's path with names for its parts, never the path that was asked for."""
        route = scope.get("route")
        if isinstance(route, OperationRoute):
            return route.path_format
        endpoint = scope.get("endpoint")
        for context in iter_route_contexts(self._app.routes) if endpoint is not None else ():
            if context.endpoint is endpoint and context.path_regex.match(scope["path"]):
                return context.path_format
        return None


def _without_live_writes(app: ASGIApp) -> ASGIApp:
    """An operator's layer sees all that is sent: it may compress or count it."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope.get("extensions", {}).pop(LIVE_WRITES, None)
        await app(scope, receive, send)

    return serve


def _first_segment(path: str) -> str:
    return path.split("/", 2)[1] if path.startswith("/") else ""


def _completed(headers: Sequence[Header], correlation: Header) -> list[Header]:
    names = {name.lower() for name, _ in headers}
    if correlation[0] in names:
        headers = [pair for pair in headers if pair[0].lower() != correlation[0]]
    defaults = [pair for pair in DEFAULT_HEADERS if pair[0] not in names]
    return [*headers, correlation, *defaults]


def _note(seen: ServedRequest, message: Message) -> None:
    match message["type"]:
        case "http.response.start":
            is_stream = any(
                name.lower() == b"content-type" and value.startswith(b"text/event-stream")
                for name, value in message["headers"]
            )
            seen.answered(message["status"], is_stream=is_stream)
        case "websocket.accept":
            seen.answered(101, is_stream=True)


async def _close(error: Exception, receive: Receive, send: Send) -> None:
    """End a websocket that is refused; raises what is no refusal."""
    match error:
        case Problem():
            await receive()
            code, reason = _POLICY_VIOLATION, error.detail
        case WebSocketException():
            code, reason = error.code, error.reason
        case _:
            raise error
    await send({"type": "websocket.close", "code": code, "reason": reason})
