"""The way of the requests that come all the time: past every layer that has nothing to say to them.

Taken by programs' requests for the routes that ask for it, on our own server. What a layer does for
such a request is done here: its host is checked, its response gets its id, its errors become
answers. All else goes the ordinary way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import State
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sk_agents.http.correlation import correlation_header
from sk_agents.http.errors import EXPECTED, handle_error, handle_unknown_error
from sk_agents.http.exchange import exchange_of
from sk_agents.http.hosts import HostGuard
from sk_agents.http.shortcut import first_segment

logger = logging.getLogger(__name__)

_END = "sk_agents.express"


class ExpressRoute(Route):
    """A plain route that may be reached the short way. No other may match the same paths."""


class _QuickState(State):
    """Keeps all as attributes of its own: Starlette's looks for one in vain before it finds it."""

    def __init__(self) -> None:
        super().__init__(self.__dict__)


class ExpressApp(FastAPI):
    """An application with a short way, once it is opened."""

    _short_way: _ShortWay | None = None
    _start_of_short_way: ASGIApp

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.state = _QuickState()

    def open_short_way(self, guard: HostGuard, around: Callable[[ASGIApp], ASGIApp]) -> None:
        """For the routes there are now. `around` puts before it what no request may go past."""
        routes = [route for route in self.router.routes if isinstance(route, ExpressRoute)]
        self._short_way = _ShortWay(routes, guard)
        self._start_of_short_way = around(self._short_way)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._short_way is not None and self._short_way.is_for(scope):
            scope["app"] = self
            await self._start_of_short_way(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class _ShortWay:
    def __init__(self, routes: Iterable[ExpressRoute], guard: HostGuard) -> None:
        self._guard = guard
        self._routes: dict[str, list[ExpressRoute]] = {}
        for route in routes:
            self._routes.setdefault(first_segment(route.path), []).append(route)

    def is_for(self, scope: Scope) -> bool:
        """Whether the request may go this way; if so, it knows where to."""
        if exchange_of(scope) is None:
            return False
        path = scope["path"]
        for route in self._routes.get(first_segment(path), ()):
            found = route.path_regex.match(path)
            if found is not None and scope["method"] in (route.methods or ()):
                if not self._guard.is_plain(scope):
                    return False
                scope["path_params"], scope["endpoint"] = found.groupdict(), route.endpoint
                scope[_END] = route.app
                return True
        return False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = exchange_of(scope)
        assert exchange is not None, "others have not come this way"
        exchange.headers = (correlation_header(scope),)
        try:
            await scope[_END](scope, receive, send)
        except EXPECTED as error:
            answer = await handle_error(Request(scope), error)
            await answer(scope, receive, send)
        except Exception as error:  # a mistake of ours, told once and to whom it matters
            answer = await handle_unknown_error(Request(scope), error)
            if exchange.response_started:
                # Cut off, so that what was sent is not taken for the whole.
                raise
            logger.exception("unexpected error")
            await answer(scope, receive, send)
