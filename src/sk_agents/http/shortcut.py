"""A short way to a route: by the first segment of the path, instead of trying one after the other.

With dozens of routes, trying them costs more than the rest of the framework together.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

_FOUND = "sk_agents.route"


class Shortcut(BaseRoute):
    """Stands before the routes it knows. What it does not find is looked for as usual."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._routes: dict[str, list[BaseRoute]] = {}
        for route in routes:
            segment = first_segment(getattr(route, "path", ""))
            if segment and "{" not in segment:
                self._routes.setdefault(segment, []).append(route)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http":
            for route in self._routes.get(first_segment(scope["path"]), ()):
                match, child_scope = route.matches(scope)
                if match is Match.FULL:
                    return match, {**child_scope, _FOUND: route}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[_FOUND].handle(scope, receive, send)


def first_segment(path: str) -> str:
    return path.split("/", 2)[1] if path.startswith("/") else ""
