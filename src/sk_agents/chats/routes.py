"""All routes of the chats API, for one application."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import FastAPI
from starlette.routing import Route

from sk_agents.chats.approvals import approval_routes
from sk_agents.chats.collection import collection_routes
from sk_agents.chats.desk import Desk
from sk_agents.chats.interactions import PATH, interaction_routes
from sk_agents.chats.making import making_routes
from sk_agents.chats.openapi import describe_chats
from sk_agents.chats.talking import Edit, Start
from sk_agents.chats.views import AgentView


def add_chat_routes(app: FastAPI, agents: Callable[[], Sequence[AgentView]]) -> None:
    """The hot routes come first: routes are tried in their order."""
    desk = Desk(agents, app.state.stream_slots)
    app.router.routes.extend(
        [
            Route("/chats/{chat_id}/interactions", Start(desk), methods=["POST"]),
            Route(f"{PATH}/edit", Edit(desk), methods=["POST"]),
            Route(f"{PATH}/regenerate", Edit(desk, repeats=True), methods=["POST"]),
        ]
    )
    app.include_router(making_routes(desk))
    app.include_router(collection_routes(desk))
    app.include_router(interaction_routes(desk))
    app.include_router(approval_routes())
    describe_chats(app)
