"""One id per request, on every response and in every error, to find the request in the logs."""

from __future__ import annotations

import re
import secrets
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sk_agents.http.response_headers import missing_defaults

HEADER = "X-Correlation-Id"
_RAW_HEADER = HEADER.lower().encode()
_STATE_KEY = "correlation_id"
# Unlike any other process's, and with a counter unlike any other request's.
_PROCESS = secrets.token_hex(10)
_requests = count(1)
# What a client sends ends up in headers and logs.
_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class CorrelationMiddleware:
    """Gives every HTTP response an id: the client's own if it is harmless, else a new one.

    And the headers that all of them have.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        header = correlation_header(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [pair for pair in message.get("headers", ()) if pair[0] != _RAW_HEADER]
                message["headers"] = [*others, header, *missing_defaults(others)]
            await send(message)

        await self.app(scope, receive, send_with_id)


def correlation_header(scope: Scope) -> tuple[bytes, bytes]:
    return _RAW_HEADER, correlation_id_of(scope).encode()


def correlation_id_of(scope: Scope) -> str:
    """The request's id; chosen at the first call, the same from then on."""
    state = scope.setdefault("state", {})
    if _STATE_KEY not in state:
        state[_STATE_KEY] = _incoming(scope) or f"{_PROCESS}{next(_requests):012x}"
    known: str = state[_STATE_KEY]
    return known


def _incoming(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _RAW_HEADER:
            return value.decode() if _ACCEPTABLE.fullmatch(value) else None
    return None
