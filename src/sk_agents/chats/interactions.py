"""Interactions: started, edited, repeated; read, streamed, decided about, stopped.

Starting, editing and repeating run all the time: plain ASGI endpoints that read raw bytes.
"""

from __future__ import annotations

import asyncio
import binascii
from dataclasses import dataclass
from urllib.parse import quote

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sk_agents.chats import streams
from sk_agents.chats.approvals import decide
from sk_agents.chats.messages import user_input
from sk_agents.chats.render import ChatRenderer, interaction_view
from sk_agents.chats.requests import (
    SURFACE,
    Chat,
    ChatRequest,
    ChatResources,
    InteractionId,
    Key,
    chat_request_of,
    engine_of,
    new_interaction_id,
    request_digest,
)
from sk_agents.engine.commands import Accepted, CancelRun, EditRun, StartRun, SteerRun
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import DATA, Attachment, NewThread, UserInput
from sk_agents.engine.ports import Quota
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import AttachmentNotFound, RunNotFound
from sk_agents.http.body import body_of
from sk_agents.http.caller import RequestCaller
from sk_agents.http.ids import idempotency_key
from sk_agents.http.limits import HeldStream
from sk_agents.http.sse import EventStream
from sk_agents.wire.requests import (
    CancelInteraction,
    EditInteraction,
    NamedDecision,
    Regenerate,
    StartInteraction,
    Steer,
)
from sk_agents.wire.views import (
    Cancelling,
    FoundInteraction,
    InteractionView,
    MessageTaken,
    Processed,
)

TITLE_LENGTH = 80

_START = TypeAdapter(StartInteraction)
_EDIT = TypeAdapter(EditInteraction)
_REGENERATE = TypeAdapter(Regenerate)


@dataclass(frozen=True, slots=True)
class StartEndpoint:
    """Say something and read the answer as it appears. A chat that is not there is made."""

    resources: ChatResources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        chat = await chat_request_of(request)
        key = idempotency_key(scope)
        streams.check_accept(scope)
        body = await body_of(request, _START, images=True)
        command = self._command(chat, key, body, await user_input(body, self.resources.pdfs))
        # Before anything is begun: an answer that cannot be sent must not be given either.
        with self.resources.slots.held(chat.caller.user_id):
            stream = await _stream(chat, await chat.engine.start(command))
            await stream(scope, receive, send)

    def _command(
        self, chat: ChatRequest, key: str | None, body: StartInteraction, message: UserInput
    ) -> StartRun:
        title = _title(body.user_message)
        user_id = chat.caller.user_id
        return StartRun(
            thread_id=chat.thread_id,
            user_id=user_id,
            run_id=new_interaction_id(),
            message=message,
            new=NewThread(
                user_id,
                wire_id=chat.chat_id,
                surface=SURFACE,
                agent=self.resources.agent(body.agent),
                metadata={"title": title},
            ),
            title=title,
            agent=body.agent,
            idempotency_key=key,
            request_digest=request_digest("start", body) if key else None,
            on_busy=body.on_busy,
            on_disconnect=body.on_disconnect,
            authorization=chat.caller.authorization,
            quota=self.resources.quota(chat),
            user_name=chat.caller.name,
        )


@dataclass(frozen=True, slots=True)
class EditEndpoint:
    """Say something else instead of an earlier message. The old answer stays as another branch."""

    resources: ChatResources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        chat = await chat_request_of(request)
        key = idempotency_key(scope)
        streams.check_accept(scope)
        body = await self._body(request)
        edited = request.path_params["interaction_id"]
        message = (
            await user_input(body, self.resources.pdfs)
            if isinstance(body, EditInteraction)
            else None
        )
        command = _edit(chat, edited, key, body, message, self.resources.quota(chat))
        with self.resources.slots.held(chat.caller.user_id):
            stream = await _stream(chat, await chat.engine.edit(command))
            await stream(scope, receive, send)

    async def _body(self, request: Request) -> EditInteraction | Regenerate:
        body = await body_of(request, _EDIT, images=True)
        if body.agent is not None:
            self.resources.agent(body.agent)
        return body


class RegenerateEndpoint(EditEndpoint):
    """Ask the same once more. The old answer stays as another branch."""

    async def _body(self, request: Request) -> Regenerate:
        return await body_of(request, _REGENERATE, optional=True)


@dataclass(frozen=True, slots=True)
class InteractionEndpoints:
    resources: ChatResources

    async def read(self, chat: Chat, interaction_id: InteractionId) -> InteractionView:
        """One interaction, on whatever branch it lies."""
        known, run = await _found(chat, interaction_id)
        visible = run in known.state.branch()
        return interaction_view(known.head, known.state, run, visible=visible)

    async def find(
        self, request: Request, caller: RequestCaller, interaction_id: str
    ) -> FoundInteraction:
        """One of the caller's interactions, in whichever chat it is."""
        engine = engine_of(request.scope)
        entry = await engine.catalog.run(interaction_id)
        if entry is None or entry.user_id != caller.user_id:
            raise RunNotFound(run_id=interaction_id)
        known = await engine.thread(entry.thread_id, caller.user_id)
        run = known.state.runs.get(interaction_id)
        if run is None or known.head.surface != SURFACE:
            raise RunNotFound(run_id=interaction_id)
        visible = run in known.state.branch()
        view = interaction_view(known.head, known.state, run, visible=visible, with_state=False)
        return FoundInteraction(**dict(view), chat_id=known.head.wire_id)

    async def events(
        self, request: Request, chat: Chat, interaction_id: InteractionId, details: bool = False
    ) -> Response:
        """Its events from the beginning, or after `Last-Event-ID` or `after`; then as they come.

        With `details` each stored event also says what the chat's own stream says of it. 204 when
        the reader has seen its end.
        """
        known, run = await _found(chat, interaction_id)
        position = await streams.place_of(request, chat, known)
        if streams.has_seen_its_end(run, position):
            return Response(status_code=204)
        streams.check_accept(request.scope)
        after = max(position or 0, run.first_seq - 1)
        renderer = await streams.renderer_at(chat, known, after, run_id=run.run_id, details=details)
        stream = streams.live_stream(
            chat, renderer, after=after, run_id=run.run_id, incarnation=known.incarnation
        )
        return HeldStream(self.resources.slots, chat.caller.user_id, stream)

    async def attachment(
        self, chat: Chat, interaction_id: InteractionId, call_id: str, number: int
    ) -> Response:
        """What a tool returned beside its text, as it is.

        A link is not fetched: its address is in the event.
        """
        _, run = await _found(chat, interaction_id)
        call = run.calls.get(call_id)
        found = (call.finished.attachments if call and call.finished else None) or ()
        if not 0 <= number < len(found) or not found[number].uri.startswith(DATA):
            raise AttachmentNotFound(call_id=call_id)
        try:
            return _file_response(found[number])
        except binascii.Error:
            # Imported from elsewhere.
            raise AttachmentNotFound(call_id=call_id) from None

    async def approve(
        self, chat: Chat, interaction_id: InteractionId, key: Key, body: NamedDecision
    ) -> Processed:
        """Decide about a call that waits: yes, no, yes with other arguments."""
        return await decide(
            chat.engine,
            chat.caller,
            body.approval_id,
            body,
            key,
            thread_id=chat.thread_id,
            run_id=interaction_id,
        )

    async def steer(
        self, chat: Chat, interaction_id: InteractionId, key: Key, body: Steer
    ) -> MessageTaken:
        """Say something while it is at work. Its next call of the model gets it."""
        message_id = await chat.engine.steer(
            SteerRun(
                chat.thread_id,
                chat.caller.user_id,
                interaction_id,
                body.user_message,
                idempotency_key=key,
                request_digest=request_digest(f"steer {interaction_id}", body) if key else None,
            )
        )
        return MessageTaken(interaction_id=interaction_id, message_id=message_id)

    async def cancel(
        self, chat: Chat, interaction_id: InteractionId, body: CancelInteraction | None = None
    ) -> Cancelling:
        """Stop it, at once or after the step that is at work. What it has said so far is kept."""
        after = body.after if body is not None else None
        command = CancelRun(chat.thread_id, chat.caller.user_id, interaction_id, after=after)
        await chat.engine.cancel(command)
        return Cancelling(interaction_id=interaction_id)


async def _found(chat: ChatRequest, interaction_id: str) -> tuple[KnownThread, Run]:
    known = await chat.engine.thread(chat.thread_id, chat.caller.user_id)
    run = known.state.runs.get(interaction_id)
    if run is None:
        raise RunNotFound(run_id=interaction_id)
    return known, run


def _file_response(attachment: Attachment) -> Response:
    """What comes from a tool is no page of ours: it is saved, and runs nothing if it is opened."""
    # Characters that are not shown can make `exe.txt` of `txt.exe`.
    shown = "".join(filter(str.isprintable, attachment.name or ""))
    name = quote(shown or "attachment", safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
        # It never changes.
        "Cache-Control": "private, max-age=31536000, immutable",
    }
    data = binascii.a2b_base64(attachment.uri.partition(",")[2].encode())
    return Response(data, media_type=attachment.media_type, headers=headers)


def _edit(
    chat: ChatRequest,
    interaction_id: str,
    key: str | None,
    body: EditInteraction | Regenerate,
    message: UserInput | None,
    quota: Quota,
) -> EditRun:
    return EditRun(
        thread_id=chat.thread_id,
        user_id=chat.caller.user_id,
        run_id=new_interaction_id(),
        edited_run=interaction_id,
        message=message,
        agent=body.agent if isinstance(body, EditInteraction) else None,
        idempotency_key=key,
        request_digest=request_digest(f"edit {interaction_id}", body) if key else None,
        on_busy=body.on_busy,
        on_disconnect=body.on_disconnect,
        authorization=chat.caller.authorization,
        quota=quota,
        user_name=chat.caller.name,
    )


async def _stream(chat: ChatRequest, accepted: Accepted) -> EventStream:
    """The run from its beginning; for a repeated request too, however far it has come."""
    # The driver's first step asks the model: while it thinks, the stream begins.
    await asyncio.sleep(0)
    after = accepted.after
    if accepted.repeated:
        known = await chat.engine.thread(chat.thread_id, chat.caller.user_id)
        after = known.state.run(accepted.run_id).first_seq - 1
    renderer = ChatRenderer(chat.chat_id)
    return streams.live_stream(chat, renderer, after=after, run_id=accepted.run_id)


def _title(message: str) -> str:
    line = " ".join(message.split(maxsplit=40)[:40])
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
