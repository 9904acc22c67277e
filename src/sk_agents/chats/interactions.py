"""One interaction: looked at, listened to, decided about, stopped."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from sk_agents.chats import streams
from sk_agents.chats.approvals import decide
from sk_agents.chats.desk import Desk, Visit
from sk_agents.chats.render import interaction_view
from sk_agents.engine.commands import CancelRun
from sk_agents.engine.log.state import Run
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import RunNotFound
from sk_agents.http.body import body_of
from sk_agents.http.streams import HeldStream
from sk_agents.wire.requests import NamedDecision
from sk_agents.wire.views import Cancelling, InteractionView

PATH = "/chats/{chat_id}/interactions/{interaction_id}"

_DECISION = TypeAdapter(NamedDecision)


def interaction_routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["interactions"])

    @router.get(PATH)
    async def read(request: Request) -> InteractionView:
        """One interaction, on whatever branch it lies."""
        visit = await desk.visit(request)
        known, run = await _found(visit, request)
        visible = run in known.state.branch()
        return interaction_view(known.head, known.state, run, visible=visible)

    @router.get(f"{PATH}/events")
    async def events(request: Request) -> Response:
        """Its events from the beginning, or after `Last-Event-ID` or `after`; then as they come.

        204 when the reader has seen its end.
        """
        visit = await desk.visit(request)
        known, run = await _found(visit, request)
        position = await streams.place_of(request, visit, known)
        if streams.has_seen_its_end(run, position):
            return Response(status_code=204)
        streams.check_accept(request.scope)
        after = max(position or 0, run.first_seq - 1)
        renderer = await streams.renderer_at(visit, known, after, run_id=run.run_id)
        stream = streams.live_stream(
            visit, renderer, after=after, run_id=run.run_id, incarnation=known.incarnation
        )
        return HeldStream(desk.slots, visit.caller.user_id, stream)

    @router.post(f"{PATH}/approve")
    async def approve(request: Request) -> Response:
        """Decide about a call that waits: yes, no, yes with other arguments."""
        visit = await desk.visit(request)
        body = await body_of(request, _DECISION)
        interaction_id = request.path_params["interaction_id"]
        return await decide(
            request,
            visit.engine,
            visit.caller,
            body.approval_id,
            body,
            thread_id=visit.thread_id,
            run_id=interaction_id,
        )

    @router.post(f"{PATH}/cancel")
    async def cancel(request: Request) -> Cancelling:
        """Stop it. What it has said so far is kept."""
        visit = await desk.visit(request)
        interaction_id = request.path_params["interaction_id"]
        await visit.engine.cancel(CancelRun(visit.thread_id, visit.caller.user_id, interaction_id))
        return Cancelling(interaction_id=interaction_id)

    return router


async def _found(visit: Visit, request: Request) -> tuple[KnownThread, Run]:
    known = await visit.engine.thread(visit.thread_id, visit.caller.user_id)
    interaction_id = request.path_params["interaction_id"]
    run = known.state.runs.get(interaction_id)
    if run is None:
        raise RunNotFound(run_id=interaction_id)
    return known, run
