"""Whom a browser may talk for: the Host allow-list and the Origin check.

A page of another site must be able neither to read nor to change anything. It can send requests,
under a name of its own that leads here (DNS rebinding) or under ours. The first is what the Host
list is for, the second what `Origin` and, where a browser sends none, `Sec-Fetch-Site` tell.
Programs send neither and are not affected; forwarded headers are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Scope

from sk_agents.http.caller import is_loopback
from sk_agents.http.errors import Problem

ANY = "*"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
REMEMBERED = 256

METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
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
    """What `HostCheck` is to accept on a server that listens at `bind_host`."""
    if allowed is not None:
        return allowed
    return None if is_loopback(bind_host) else (ANY,)


class HostCheck:
    """Refuses a Host that is not ours with 400, an Origin that is not ours with 403.

    `hosts` are names without ports, or `*`. Loopback names and the address at which a request came
    in are always ours: no other site can have them. `None` accepts only these on connections that
    come in at a loopback address, and anything on others, where callers have to prove themselves.
    `origins` are other sites whose pages may talk to us, as browsers write them.
    """

    def __init__(
        self, hosts: Collection[str] | None = None, origins: Collection[str] | None = None
    ) -> None:
        self._any_host = hosts is not None and ANY in hosts
        self._only_on_loopback = hosts is None
        self._names = {name.lower() for name in (*LOOPBACK_NAMES, *(hosts or ()))}
        self._origins = {origin.lower() for origin in origins or ()}
        # Few values come again and again; the parsing is for the first time.
        self._is_our_host = lru_cache(maxsize=REMEMBERED)(self._accepts_host)

    def other_site(self, scope: Scope) -> str | None:
        """The origin of the page that sent this, if it is one of the `origins`.

        Raises:
            Problem: the Host is not ours, or the page's site may not do this.
        """
        sent = _looked_at(scope)
        server = scope.get("server")
        host = sent.get(b"host")
        if not self._is_our_host(host, server[0] if server else ""):
            raise Problem(400, "bad_host", "This is not one of our names.")
        origin = sent.get(b"origin")
        if origin and origin.lower() in self._origins:
            return origin
        if len(sent) > 1 and _is_foreign_site(scope, sent):
            raise Problem(403, "foreign_origin", "Pages of that site may not do this.")
        return None

    def _accepts_host(self, host: str | None, address: str) -> bool:
        authority = _AUTHORITY.fullmatch(host or "")
        if authority is None or self._any_host:
            return authority is not None
        name = authority[1].lower()
        if name in self._names or name.strip("[]") == address:
            return True
        return self._only_on_loopback and not is_loopback(address)


def preflight_answer(scope: Scope) -> Response | None:
    """The answer to a browser that asks what a page of another site may send; else nothing."""
    if scope["type"] != "http" or scope["method"] != "OPTIONS":
        return None
    if not _looked_at(scope).get(b"access-control-request-method"):
        return None
    headers = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": REQUEST_HEADERS,
        "Access-Control-Max-Age": PREFLIGHT_SECONDS,
    }
    return Response(status_code=204, headers=headers)


def allow_origin(start: Message, origin: str) -> None:
    """Let the page at `origin` read the response that starts so."""
    headers = MutableHeaders(scope=start)
    headers["Access-Control-Allow-Origin"] = origin
    headers["Access-Control-Expose-Headers"] = RESPONSE_HEADERS
    headers.add_vary_header("Origin")


def _looked_at(scope: Scope) -> dict[bytes, str | None]:
    """The headers that matter here; one that was sent twice has no value."""
    sent: dict[bytes, str | None] = {}
    for name, value in scope["headers"]:
        if name in _LOOKED_AT:
            sent[name] = None if name in sent else value.decode("latin-1")
    return sent


def _is_foreign_site(scope: Scope, sent: Mapping[bytes, str | None]) -> bool:
    if b"origin" in sent:
        origin, host = sent[b"origin"], sent.get(b"host")
        return origin is None or not _is_same(origin.lower(), (host or "").lower())
    if b"sec-fetch-site" not in sent or sent[b"sec-fetch-site"] in ("same-origin", "none"):
        return False
    # A link to our page may stand anywhere; only the whole window may follow it.
    follows_link = sent.get(b"sec-fetch-mode") == "navigate" and scope.get("method") == "GET"
    return not follows_link or sent.get(b"sec-fetch-dest") != "document"


def _is_same(origin: str, host: str) -> bool:
    scheme, _, place = origin.partition("://")
    if scheme not in _DEFAULT_PORTS:
        return False
    return place == host or place == host.removesuffix(_DEFAULT_PORTS[scheme])
