"""Where each API's routes come from. The first token of `apiVersion` says which."""

from __future__ import annotations

from sk_agents.skagents.routes import get_rest_routes, get_websocket_routes
from sk_agents.tealagents.openapi import get_document_routes
from sk_agents.tealagents.routes import get_resume_routes, get_stateful_routes

__all__ = [
    "get_document_routes",
    "get_rest_routes",
    "get_resume_routes",
    "get_stateful_routes",
    "get_websocket_routes",
]
