"""The three ways to make an agent speak: start, edit, regenerate. Each answers with a stream.

These are the hot routes: plain ASGI endpoints that read raw bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from sk_agents.chats import streams
from sk_agents.chats.desk import (
    SURFACE,
    Desk,
    Visit,
    busy,
    new_interaction_id,
    request_digest,
)
from sk_agents.chats.render import ChatRenderer, user_input
from sk_agents.engine.commands import Accepted, EditRun, StartRun
from sk_agents.engine.models import NewThread
from sk_agents.engine.ports import Quota
from sk_agents.exceptions import ThreadBusy
from sk_agents.http.body import body_of
from sk_agents.http.idempotency import idempotency_key
from sk_agents.http.sse import EventStream
from sk_agents.wire.requests import EditInteraction, Regenerate, StartInteraction

TITLE_LENGTH = 80

_START = TypeAdapter(StartInteraction)
_EDIT = TypeAdapter(EditInteraction)
_REGENERATE = TypeAdapter(Regenerate)


@dataclass(frozen=True, slots=True)
class Start:
    desk: Desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        visit = await self.desk.visit(request)
        key = idempotency_key(scope)
        streams.check_accept(scope)
        body = await body_of(request, _START, images=True)
        command = self._command(visit, key, body)
        # Before anything is begun: an answer that cannot be sent must not be given either.
        with self.desk.slots.held(visit.caller.user_id):
            try:
                accepted = await visit.engine.start(command)
            except ThreadBusy as error:
                await busy(request, error)(scope, receive, send)
                return
            await (await _stream(visit, accepted))(scope, receive, send)

    def _command(self, visit: Visit, key: str | None, body: StartInteraction) -> StartRun:
        title = _title(body.user_message)
        user_id = visit.caller.user_id
        return StartRun(
            thread_id=visit.thread_id,
            user_id=user_id,
            run_id=new_interaction_id(),
            message=user_input(body),
            new=NewThread(
                user_id,
                wire_id=visit.chat_id,
                surface=SURFACE,
                agent=self.desk.agent(body.agent),
                metadata={"title": title},
            ),
            title=title,
            agent=body.agent,
            idempotency_key=key,
            request_digest=request_digest("start", body) if key else None,
            on_busy=body.on_busy,
            on_disconnect=body.on_disconnect,
            authorization=visit.caller.authorization,
            quota=self.desk.quota(visit),
        )


@dataclass(frozen=True, slots=True)
class Edit:
    """Says something else in place of an earlier message, or the same once more."""

    desk: Desk
    repeats: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        visit = await self.desk.visit(request)
        key = idempotency_key(scope)
        streams.check_accept(scope)
        body: EditInteraction | Regenerate
        if self.repeats:
            body = await body_of(request, _REGENERATE, optional=True)
        else:
            body = await body_of(request, _EDIT, images=True)
            if body.agent is not None:
                self.desk.agent(body.agent)
        edited = request.path_params["interaction_id"]
        command = _edit(visit, edited, key, body, self.desk.quota(visit))
        with self.desk.slots.held(visit.caller.user_id):
            try:
                accepted = await visit.engine.edit(command)
            except ThreadBusy as error:
                await busy(request, error)(scope, receive, send)
                return
            await (await _stream(visit, accepted))(scope, receive, send)


def _edit(
    visit: Visit,
    interaction_id: str,
    key: str | None,
    body: EditInteraction | Regenerate,
    quota: Quota,
) -> EditRun:
    return EditRun(
        thread_id=visit.thread_id,
        user_id=visit.caller.user_id,
        run_id=new_interaction_id(),
        edited_run=interaction_id,
        message=user_input(body) if isinstance(body, EditInteraction) else None,
        agent=body.agent if isinstance(body, EditInteraction) else None,
        idempotency_key=key,
        request_digest=request_digest(f"edit {interaction_id}", body) if key else None,
        on_busy=body.on_busy,
        on_disconnect=body.on_disconnect,
        authorization=visit.caller.authorization,
        quota=quota,
    )


async def _stream(visit: Visit, accepted: Accepted) -> EventStream:
    """The run from its beginning; for a repeated request too, however far it has come."""
    after = accepted.after
    if accepted.repeated:
        known = await visit.engine.thread(visit.thread_id, visit.caller.user_id)
        after = known.state.run(accepted.run_id).first_seq - 1
    renderer = ChatRenderer(visit.chat_id)
    return streams.live_stream(visit, renderer, after=after, run_id=accepted.run_id)


def _title(message: str) -> str:
    line = " ".join(message.split(maxsplit=40)[:40])
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
