"""Whom a browser may talk for: the Host allow-list and the Origin check.

A page of another site must be able neither to read nor to change anything. It can send requests,
under a name of its own that leads here (DNS rebinding) or under ours. The first is what the Host
list is for, the second what `Origin` and, where a browser sends none, `Sec-Fetch-Site` tell.
Programs send neither and are not affected; forwarded headers are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sk_agents.http.caller import is_loopback
from sk_agents.http.errors import problem

ANY = "*"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
REMEMBERED = 256

METHODS = "GET, HEAD, POST, PATCH, DELETE"
REQUEST_HEADERS = (
    "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Correlation-Id, Traceparent"
)
RESPONSE_HEADERS = "X-Correlation-Id, Retry-After"
PREFLIGHT_SECONDS = "600"
# A name or an address, and perhaps a port: nothing that a URL could be confused by.
_AUTHORITY = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_LOOKED_AT = frozenset(
    (
        b"host",
        b"origin",
        b"sec-fetch-site",
        b"sec-fetch-mode",
        b"sec-fetch-dest",
        b"access-control-request-method",
    )
)


def accepted_hosts(allowed: Collection[str] | None, bind_host: str) -> Collection[str] | None:
    """What `HostGuard` is to accept on a server that listens at `bind_host`."""
    if allowed is not None:
        return allowed
    return None if is_loopback(bind_host) else (ANY,)


class HostGuard:
    """Refuses a Host that is not ours with 400, an Origin that is not ours with 403.

    `hosts` are names without ports, or `*`. Loopback names and the address at which a request came
    in are always ours: no other site can have them. `None` accepts only these on connections that
    come in at a loopback address, and anything on others, where callers have to prove themselves.
    `origins` are other sites whose pages may talk to us, as browsers write them.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] | None = None,
        origins: Collection[str] | None = None,
    ) -> None:
        self.app = app
        self._any_host = hosts is not None and ANY in hosts
        self._only_on_loopback = hosts is None
        self._names = {name.lower() for name in (*LOOPBACK_NAMES, *(hosts or ()))}
        self._origins = {origin.lower() for origin in origins or ()}
        # Few values come again and again; the parsing is for the first time.
        self._is_our_host = lru_cache(maxsize=REMEMBERED)(self._accepts_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if self.is_plain(scope):
            await self.app(scope, receive, send)
            return
        sent = [header for header in scope["headers"] if header[0] in _LOOKED_AT]
        await self._look_closer(scope, receive, send, sent)

    def is_plain(self, scope: Scope) -> bool:
        """Whether this is a program's request to one of our names: nothing to look at closer."""
        sent = [header for header in scope["headers"] if header[0] in _LOOKED_AT]
        if len(sent) != 1 or sent[0][0] != b"host":
            return False
        server = scope.get("server")
        return self._is_our_host(sent[0][1].decode("latin-1"), server[0] if server else "")

    async def _look_closer(
        self, scope: Scope, receive: Receive, send: Send, sent: list[tuple[bytes, bytes]]
    ) -> None:
        server = scope.get("server")
        host = _only(sent, b"host")
        if not self._is_our_host(host, server[0] if server else ""):
            await _refuse(scope, receive, send, 400, "bad_host", "This is not one of our names.")
            return
        origin = _only(sent, b"origin")
        if origin and origin.lower() in self._origins:
            await self._serve_site(scope, receive, send, sent, origin)
        elif _is_foreign_site(scope, sent, host, origin):
            await _refuse(
                scope, receive, send, 403, "foreign_origin", "Pages of that site may not do this."
            )
        else:
            await self.app(scope, receive, send)

    async def _serve_site(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        sent: list[tuple[bytes, bytes]],
        origin: str,
    ) -> None:
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
            return
        allowed = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
        if scope["method"] == "OPTIONS" and _only(sent, b"access-control-request-method"):
            answer = Response(status_code=204, headers={**allowed, **_PREFLIGHT})
            await answer(scope, receive, send)
            return

        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Access-Control-Allow-Origin"] = origin
                headers["Access-Control-Expose-Headers"] = RESPONSE_HEADERS
                headers.add_vary_header("Origin")
            await send(message)

        await self.app(scope, receive, send_allowed)

    def _accepts_host(self, host: str | None, address: str) -> bool:
        authority = _AUTHORITY.fullmatch(host or "")
        if authority is None or self._any_host:
            return authority is not None
        name = authority[1].lower()
        if name in self._names or name.strip("[]") == address:
            return True
        return self._only_on_loopback and not is_loopback(address)


_PREFLIGHT = {
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Allow-Headers": REQUEST_HEADERS,
    "Access-Control-Max-Age": PREFLIGHT_SECONDS,
}


def _only(sent: list[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The header's value; nothing at all if it was sent twice."""
    values = [value for key, value in sent if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else None


def _is_foreign_site(
    scope: Scope, sent: list[tuple[bytes, bytes]], host: str | None, origin: str | None
) -> bool:
    names = [name for name, _ in sent]
    if b"origin" in names:
        return origin is None or not _is_same(origin.lower(), (host or "").lower())
    if _only(sent, b"sec-fetch-site") in (None, "same-origin", "none"):
        return names.count(b"sec-fetch-site") > 1
    # A link to our page may stand anywhere; only the whole window may follow it.
    follows_link = _only(sent, b"sec-fetch-mode") == "navigate" and scope.get("method") == "GET"
    return not follows_link or _only(sent, b"sec-fetch-dest") != "document"


def _is_same(origin: str, host: str) -> bool:
    scheme, _, place = origin.partition("://")
    if scheme not in _DEFAULT_PORTS:
        return False
    return place == host or place == host.removesuffix(_DEFAULT_PORTS[scheme])


async def _refuse(
    scope: Scope, receive: Receive, send: Send, status: int, code: str, detail: str
) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": detail})
        return
    answer = problem(Request(scope), status, code=code, detail=detail)
    await answer(scope, receive, send)
