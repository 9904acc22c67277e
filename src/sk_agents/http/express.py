"""The way of the requests that come all the time: past every layer that has nothing to say to them.

Taken by programs' requests for the routes that ask for it. What a layer does for such a request is
done here: its host is checked, its errors become answers. All else goes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sk_agents.http.errors import EXPECTED, handle_error
from sk_agents.http.hosts import HostGuard
from sk_agents.http.shortcut import first_segment


class ExpressRoute(Route):
    """A plain route that may be reached the short way. No other may match the same paths."""


class Express:
    """A middleware; `hosts` and `origins` are those of the `HostGuard` behind it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        routes: Sequence[BaseRoute],
        hosts: Collection[str] | None,
        origins: Collection[str] | None,
    ) -> None:
        self.app = app
        self._guard = HostGuard(app, hosts=hosts, origins=origins)
        self._routes: dict[str, list[ExpressRoute]] = {}
        for route in routes:
            if isinstance(route, ExpressRoute):
                self._routes.setdefault(first_segment(route.path), []).append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._route(scope) if scope["type"] == "http" else None
        if route is None or not self._guard.is_plain(scope):
            await self.app(scope, receive, send)
            return
        try:
            await route.app(scope, receive, send)
        except EXPECTED as error:
            answer = await handle_error(Request(scope), error)
            await answer(scope, receive, send)

    def _route(self, scope: Scope) -> ExpressRoute | None:
        path = scope["path"]
        for route in self._routes.get(first_segment(path), ()):
            found = route.path_regex.match(path)
            if found is not None and scope["method"] in (route.methods or ()):
                scope["path_params"], scope["endpoint"] = found.groupdict(), route.endpoint
                return route
        return None
