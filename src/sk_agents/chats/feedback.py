"""What people think of answers: a thumb and a note, and all of them for those who run the server.

An operator reads ratings and notes, which were written for them, and ids. What was asked and
answered stays with the person whose chat it is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from sk_agents.chats.render import feedback_view
from sk_agents.chats.requests import Chat, InteractionId, engine_of
from sk_agents.engine.events import Noted
from sk_agents.engine.threads.catalog import RatedRun
from sk_agents.exceptions import InvalidInput
from sk_agents.http.caller import RequestCaller
from sk_agents.interactions import spelled_time
from sk_agents.wire.requests import GiveFeedback
from sk_agents.wire.views import FeedbackPage, FeedbackRow, FeedbackView

MAX_PAGE = 100


class FeedbackEndpoints:
    async def give(
        self, chat: Chat, interaction_id: InteractionId, body: GiveFeedback
    ) -> FeedbackView:
        """Say what the answer was worth, instead of what was said before."""
        rated = await chat.engine.catalog.rate(
            chat.thread_id, chat.caller.user_id, interaction_id, body.rating, body.note
        )
        assert rated is not None
        return feedback_view(rated)

    async def withdraw(self, chat: Chat, interaction_id: InteractionId) -> Response:
        """Take a rating back."""
        user_id = chat.caller.user_id
        await chat.engine.catalog.rate(chat.thread_id, user_id, interaction_id, None, None)
        return Response(status_code=204)

    async def export(
        self,
        request: Request,
        caller: RequestCaller,
        since: Annotated[
            datetime | None, Query(description="With a time zone. Unset: from the first one on.")
        ] = None,
        agent: Annotated[str | None, Query(max_length=256, description="Of this agent.")] = None,
        cursor: Annotated[str | None, Query(max_length=128)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = MAX_PAGE,
    ) -> FeedbackPage:
        """Ratings and notes of all users, in no order. A page may be short, even empty: `next` says
        whether there are more."""
        if since is not None and since.tzinfo is None:
            raise InvalidInput("since needs a time zone, such as 2026-11-01T00:00:00Z.")
        engine = engine_of(request.scope)
        if cursor is None:
            await engine.audit.note(
                Noted(
                    what="feedback_exporting", who=caller.user_id, who_name=caller.name, agent=agent
                )
            )
        page = await engine.catalog.ratings(after=cursor, limit=limit)
        rows = [_row(item) for item in page.items if since is None or item.rated.at >= since]
        wanted = [row for row in rows if agent in (None, row.agent)]
        return FeedbackPage(feedback=wanted, next=page.after)


def _row(item: RatedRun) -> FeedbackRow:
    assert item.rated.rating is not None
    return FeedbackRow(
        at=spelled_time(item.rated.at),
        rating=item.rated.rating,
        note=item.rated.note,
        agent=item.run.agent or item.thread.agent,
        user_id=item.thread.user_id,
        chat_id=item.thread.wire_id,
        interaction_id=item.run.run_id,
    )
