"""All routes of the chats API, for one application."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import FastAPI

from sk_agents.chats.approvals import approval_routes
from sk_agents.chats.collection import collection_routes
from sk_agents.chats.desk import Desk
from sk_agents.chats.interactions import PATH, interaction_routes
from sk_agents.chats.making import making_routes
from sk_agents.chats.talking import Edit, Start
from sk_agents.http.express import ExpressRoute
from sk_agents.http.openapi import describe_later
from sk_agents.wire.views import AgentView


def add_chat_routes(app: FastAPI, agents: Callable[[], Sequence[AgentView]]) -> None:
    """The hot routes come first: routes are tried in their order."""
    desk = Desk(agents, app.state.limits)
    app.router.routes.extend(
        [
            ExpressRoute("/chats/{chat_id}/interactions", Start(desk), methods=["POST"]),
            ExpressRoute(f"{PATH}/edit", Edit(desk), methods=["POST"]),
            ExpressRoute(f"{PATH}/regenerate", Edit(desk, repeats=True), methods=["POST"]),
        ]
    )
    app.include_router(making_routes(desk))
    app.include_router(collection_routes(desk))
    app.include_router(interaction_routes(desk))
    app.include_router(approval_routes())
    describe_later(app, _describe)


def _describe(app: FastAPI) -> None:
    # All that it says is made of models, which a server that nobody asks never builds.
    from sk_agents.chats.openapi import describe_chats  # noqa: PLC0415

    describe_chats(app)
