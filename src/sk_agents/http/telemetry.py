"""Where requests are seen by operators: one span each, and the page of metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sk_agents.http.correlation import correlation_id_of
from sk_agents.telemetry.observers import RequestObserver

METRICS_PATH = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TRACE_HEADERS = (b"traceparent", b"tracestate")
_STREAM = b"text/event-stream"


class TelemetryMiddleware:
    """Around everything else, so that nothing is served unseen. A stream is seen until its end."""

    def __init__(self, app: ASGIApp, requests: RequestObserver) -> None:
        self.app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        method = scope["method"] if kind == "http" else "WEBSOCKET"
        correlation_id = correlation_id_of(scope)
        with self._requests.served(method, _trace_headers(scope), correlation_id) as request:

            async def send_seen(message: Message) -> None:
                match message["type"]:
                    case "http.response.start":
                        request.answered(message["status"], is_stream=_is_stream(message))
                    case "websocket.accept":
                        request.answered(101, is_stream=True)
                await send(message)

            try:
                await self.app(scope, receive, send_seen)
            finally:
                request.route = route_of(scope)


def metrics_route(page: Callable[[], bytes]) -> Route:
    """The page that Prometheus reads. Whoever can reach the server can read it."""

    async def metrics(request: Request) -> Response:
        return Response(page(), media_type=METRICS_TYPE)

    return Route(METRICS_PATH, metrics, methods=["GET"], include_in_schema=False)


def route_of(scope: Scope) -> str | None:
    """The route's path with names for its parts, never the path that was asked for."""
    # A router that was included under a prefix knows its routes only without it.
    chosen = scope.get("fastapi", {}).get("effective_route_context")
    whole = getattr(chosen, "starlette_route", None) or chosen
    route = whole or scope.get("route") or _found_route(scope)
    path = getattr(route, "path_format", None)
    return path if isinstance(path, str) else None


def _found_route(scope: Scope) -> BaseRoute | None:
    """FastAPI's router does not say which plain route it took, only where that led."""
    endpoint = scope.get("endpoint")
    if endpoint is None:
        return None
    for route in scope["app"].routes:
        if getattr(route, "endpoint", getattr(route, "app", None)) is endpoint:
            if route.path_regex.match(scope["path"]):
                return cast(BaseRoute, route)
    return None


def _trace_headers(scope: Scope) -> dict[str, str]:
    return {
        name.decode(): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in _TRACE_HEADERS
    }


def _is_stream(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(_STREAM)
        for name, value in start.get("headers", ())
    )
