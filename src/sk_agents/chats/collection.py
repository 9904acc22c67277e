"""The chats of a user: listed, read, renamed, deleted, switched, taken away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sk_agents.chats import streams
from sk_agents.chats.archive import archive
from sk_agents.chats.desk import SURFACE, Desk, busy, engine_of
from sk_agents.chats.history import DocumentResponse, HistoryCursor, chat_document
from sk_agents.chats.render import branch_list, chat_summary
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import Event
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import ThreadQuery
from sk_agents.exceptions import ThreadBusy
from sk_agents.http.body import body_of
from sk_agents.http.caller import acting_caller
from sk_agents.http.streams import HeldStream
from sk_agents.wire.requests import BranchChoice, ChatChange
from sk_agents.wire.views import AgentList, BranchList, ChatPage, ChatSummary, ChatView

MAX_PAGE = 100
EXPORT_PAGE = 100
EXPORT_BYTES = 256 * 1024

_CHANGE = TypeAdapter(ChatChange)
_BRANCH = TypeAdapter(BranchChoice)


def collection_routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["chats"])

    @router.get("/agents")
    async def agents(request: Request) -> AgentList:
        """The agents a chat can be held with; the first one is the default."""
        await acting_caller(request)
        return AgentList(agents=list(desk.views()))

    @router.get("/chats")
    async def listing(
        request: Request,
        cursor: Annotated[str | None, Query(max_length=128)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
        q: Annotated[str | None, Query(max_length=200)] = None,
    ) -> ChatPage:
        """The caller's chats, the most recently changed first; with `q` those that mention it."""
        caller = await acting_caller(request)
        page = await engine_of(request.scope).catalog.threads(
            ThreadQuery(caller.user_id, surface=SURFACE, text=q, after=cursor, limit=limit)
        )
        return ChatPage(chats=[chat_summary(thread) for thread in page.threads], next=page.after)

    @router.get("/chats/{chat_id}", response_model=ChatView)
    async def read(
        request: Request,
        include: Literal["superseded"] | None = None,
        state: bool = True,
        before: Annotated[str | None, Query(max_length=160)] = None,
    ) -> Response:
        """The chat with its visible interactions; with `include=superseded` with all of them.

        Whole, unless its states have more than 128 MiB or it has more than 10,000 events: then
        from its newest part on, `truncated` is true, and `next` is the `before` of the older part.
        """
        visit = await desk.visit(request)
        place = HistoryCursor.of(before) if before is not None else None
        document = await chat_document(
            visit, with_superseded=include is not None, with_state=state, before=place
        )
        return DocumentResponse(document)

    @router.patch("/chats/{chat_id}")
    async def rename(request: Request) -> ChatSummary:
        visit = await desk.visit(request)
        body = await body_of(request, _CHANGE)
        labels = {"title": body.title}
        catalog = visit.engine.catalog
        return chat_summary(await catalog.label(visit.thread_id, visit.caller.user_id, labels))

    @router.delete("/chats/{chat_id}", status_code=204)
    async def delete(request: Request) -> Response:
        """Stop what runs in it and remove it for good."""
        visit = await desk.visit(request)
        await visit.engine.delete(visit.thread_id, visit.caller.user_id)
        desk.quotas.release_chat(visit.caller.user_id)
        return Response(status_code=204)

    @router.get("/chats/{chat_id}/events")
    async def events(request: Request) -> Response:
        """Everything that happens in the chat, endlessly; without a cursor from now on."""
        visit = await desk.visit(request)
        known = await visit.engine.thread(visit.thread_id, visit.caller.user_id)
        state = known.state
        position = await streams.place_of(request, visit, known)
        streams.check_accept(request.scope)
        after = state.next_seq - 1 if position is None else position
        renderer = await streams.renderer_at(visit, known, after)
        stream = streams.live_stream(visit, renderer, after=after, incarnation=known.incarnation)
        return HeldStream(desk.slots, visit.caller.user_id, stream)

    @router.get("/chats/{chat_id}/branches")
    async def branches(request: Request) -> BranchList:
        """Every interaction and what it follows: the conversation as a tree."""
        visit = await desk.visit(request)
        known = await visit.engine.thread(visit.thread_id, visit.caller.user_id)
        return branch_list(known.state)

    @router.post("/chats/{chat_id}/branch", response_model=BranchList)
    async def switch(request: Request) -> BranchList | Response:
        """Show the branch of this interaction."""
        visit = await desk.visit(request)
        body = await body_of(request, _BRANCH)
        catalog = visit.engine.catalog
        try:
            known = await catalog.switch(visit.thread_id, visit.caller.user_id, body.interaction_id)
        except ThreadBusy as error:
            return busy(request, error)
        return branch_list(known.state)

    @router.get("/chats/{chat_id}/export")
    async def export(request: Request) -> Response:
        """The whole chat as a document for `POST /chats/import`."""
        visit = await desk.visit(request)
        known = await visit.engine.thread(visit.thread_id, visit.caller.user_id)
        pages = _pages(visit.engine, known.head, known.state.next_seq - 1)
        return StreamingResponse(
            archive(known.head, known.state, pages),
            media_type="application/json",
            headers={"Content-Disposition": f"attachment; filename={visit.chat_id}.json"},
        )

    return router


async def _pages(engine: Engine, head: Thread, last_seq: int) -> AsyncIterator[Sequence[Event]]:
    """The log as far as it goes now, a part at a time."""
    seq = 0
    while seq < last_seq:
        page = await engine.catalog.events(
            head, seq, min(EXPORT_PAGE, last_seq - seq), max_bytes=EXPORT_BYTES
        )
        if not page:
            return
        yield page
        seq = page[-1].seq
