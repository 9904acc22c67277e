"""Where each API's routes come from. The first token of `apiVersion` says which.

An API is imported when its routes are first asked for: most servers serve one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sk_agents.skagents.routes import get_rest_routes, get_websocket_routes
    from sk_agents.tealagents.routes import (
        get_document_routes,
        get_resume_routes,
        get_stateful_routes,
    )

__all__ = [
    "get_document_routes",
    "get_rest_routes",
    "get_resume_routes",
    "get_stateful_routes",
    "get_websocket_routes",
]
_PLACES = {
    "get_document_routes": "sk_agents.tealagents.routes",
    "get_rest_routes": "sk_agents.skagents.routes",
    "get_resume_routes": "sk_agents.tealagents.routes",
    "get_stateful_routes": "sk_agents.tealagents.routes",
    "get_websocket_routes": "sk_agents.skagents.routes",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
