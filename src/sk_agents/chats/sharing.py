"""Read-only links to a chat: made and taken back by its owner, read and copied by others.

A link names the chat's thread and a secret, which lies in the thread's labels. It shows the branch
up to one interaction: what is said later is not shared. Readers have to be callers of this server.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import Body
from starlette.requests import Request
from starlette.responses import Response

from sk_agents.chats.archive import FORMAT, VERSION, Archive, restored
from sk_agents.chats.history import DocumentResponse, list_pieces
from sk_agents.chats.render import chat_summary, interaction_view
from sk_agents.chats.requests import SURFACE, Chat, ChatResources, engine_of
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import Rated
from sk_agents.engine.log.blobs import carried
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import TERMINAL, NewThread, Thread
from sk_agents.engine.run.lifecycle import is_in_bin, refuse_in_bin
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import InvalidInput, NotFound, RunNotFound, ThreadNotFound
from sk_agents.http.caller import RequestCaller
from sk_agents.interactions import chat_thread_id, spelled_time
from sk_agents.wire.requests import NewShare
from sk_agents.wire.views import ChatSummary, ShareList, ShareView

SHARES = "shares"
MAX_SHARES = 20
EVENTS_AT_ONCE = 500
_TOKEN = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ShareEndpoints:
    resources: ChatResources

    async def listing(self, chat: Chat) -> ShareList:
        """The links to the chat that work."""
        head = await chat.engine.catalog.head(chat.thread_id, chat.caller.user_id)
        return ShareList(shares=[_view(head.thread_id, *one) for one in _shares(head.metadata)])

    async def make(
        self, chat: Chat, body: Annotated[NewShare, Body(default_factory=NewShare)]
    ) -> ShareView:
        """A link to the branch that ends with this interaction; without one, to what is shown."""
        known = await chat.engine.thread(chat.thread_id, chat.caller.user_id)
        refuse_in_bin(known)
        run_id = body.interaction_id or known.state.head_run
        if run_id is None:
            raise InvalidInput("Nothing in this chat has ended yet.")
        run = known.state.runs.get(run_id)
        if run is None:
            raise RunNotFound(run_id=run_id)
        if run.phase not in TERMINAL:
            raise InvalidInput("This interaction has not ended yet.")
        secret = secrets.token_hex(16)
        entry = {
            "run": run.run_id,
            "at": spelled_time(datetime.now(UTC)),
            # Who said something in it may be another: a chat can be a copy.
            "by": chat.caller.name,
        }

        def added(head: Thread) -> Mapping[str, Any]:
            shares = dict(_shares(head.metadata))
            if len(shares) >= MAX_SHARES:
                raise InvalidInput(f"A chat has at most {MAX_SHARES} links. Take one back first.")
            return {SHARES: {**shares, secret: entry}}

        await chat.engine.catalog.relabel(chat.thread_id, chat.caller.user_id, added)
        return _view(chat.thread_id, secret, entry)

    async def revoke(self, request: Request, caller: RequestCaller, share_id: str) -> Response:
        """The caller's link leads nowhere from now on."""
        engine = engine_of(request.scope)
        known, _ = await _linked(engine, share_id)
        head = known.head
        if head.user_id != caller.user_id:
            raise ThreadNotFound(thread_id=share_id)
        revoked = _secret(head.thread_id, share_id)

        def left(head: Thread) -> Mapping[str, Any]:
            shares = {secret: one for secret, one in _shares(head.metadata) if secret != revoked}
            return {SHARES: shares or None}

        await engine.catalog.relabel(head.thread_id, head.user_id, left)
        return Response(status_code=204)

    async def read(self, request: Request, caller: RequestCaller, share_id: str) -> Response:
        """What a link shows: a conversation that the reader can only read."""
        known, path, entry = await _shared(engine_of(request.scope), share_id)
        views = (
            interaction_view(
                known.head, known.state, run, visible=True, with_state=False
            ).model_copy(update={"feedback": None})
            for run in path
        )
        shown = {
            "title": str(known.head.metadata.get("title", "")),
            "agent": known.head.agent,
            "shared_by": entry.get("by"),
            "shared_at": str(entry["at"]),
        }
        # All of these have ended, so they do not change while they are sent.
        return DocumentResponse(list_pieces(shown, "interactions", views))

    async def copy(self, request: Request, caller: RequestCaller, share_id: str) -> ChatSummary:
        """A chat of the caller's own with the same past, to go on from there."""
        engine = engine_of(request.scope)
        known, path, _ = await _shared(engine, share_id)
        document = await _document(engine, known, path)
        events = await asyncio.to_thread(restored, document, self.resources.has_agent)
        labels = {"title": document.title} if document.title else {}
        agent = document.agent if self.resources.has_agent(document.agent) else None
        new = NewThread(
            caller.user_id,
            wire_id=f"chat_{uuid4().hex}",
            surface=SURFACE,
            agent=self.resources.agent(agent),
            metadata=labels,
        )
        await self.resources.quotas.admit_chat(engine.catalog, caller.user_id)
        thread_id = chat_thread_id(caller.user_id, new.wire_id)
        return chat_summary(await engine.catalog.restore(thread_id, new, events))


async def _shared(
    engine: Engine, share_id: str
) -> tuple[KnownThread, list[Run], Mapping[str, Any]]:
    """The thread, the runs that are shared, and the link.

    Raises:
        ThreadNotFound: no such link, or its chat is gone or in the bin. All look alike.
    """
    known, entry = await _linked(engine, share_id)
    if is_in_bin(known):
        raise ThreadNotFound(thread_id=share_id)
    return known, known.state.path(str(entry["run"])), entry


async def _linked(engine: Engine, share_id: str) -> tuple[KnownThread, Mapping[str, Any]]:
    """The thread and the link, whether it works now or not."""
    absent = ThreadNotFound(thread_id=share_id)
    if not _TOKEN.fullmatch(share_id):
        raise absent
    thread_id = str(UUID(share_id[:32]))
    try:
        known = await engine.unowned_thread(thread_id)
    except NotFound:
        raise absent from None
    given = _secret(thread_id, share_id)
    entry = next(
        (entry for secret, entry in _shares(known.head.metadata) if _is_same(secret, given)), None
    )
    if entry is None or known.head.surface != SURFACE:
        raise absent
    return known, entry


async def _document(engine: Engine, known: KnownThread, path: list[Run]) -> Archive:
    """As an export of the branch alone."""
    shown = {run.run_id for run in path}
    taken: set[str] = set()
    events: list[dict[str, Any]] = []
    seq, last = 0, max((run.last_seq for run in path), default=0)
    while seq < last:
        page = await engine.catalog.events(known.head, seq, EVENTS_AT_ONCE)
        if not page:
            break
        seq = page[-1].seq
        events += [
            # What it refers to may have been said first on another branch.
            carried(event, known.state.contents, taken).model_dump(
                mode="json", exclude={"seq"}, by_alias=True
            )
            for event in page
            # What the owner thinks of an answer is not the reader's.
            if event.run_id in shown and not isinstance(event, Rated)
        ]
    return Archive(
        format=FORMAT,
        version=VERSION,
        agent=known.head.agent,
        title=known.head.metadata.get("title") or None,
        events=events,
    )


def _shares(labels: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return list((labels.get(SHARES) or {}).items())


def _view(thread_id: str, secret: str, entry: Mapping[str, Any]) -> ShareView:
    share_id = f"{UUID(thread_id).hex}{secret}"
    return ShareView(
        share_id=share_id,
        path=f"/#/shared/{share_id}",
        interaction_id=str(entry["run"]),
        created_at=str(entry["at"]),
    )


def _secret(thread_id: str, share_id: str) -> str:
    """The empty text if the link is to another thread."""
    prefix = UUID(thread_id).hex
    return share_id[32:] if share_id.startswith(prefix) else ""


def _is_same(secret: str, given: str) -> bool:
    return hmac.compare_digest(secret.encode(), given.encode())
