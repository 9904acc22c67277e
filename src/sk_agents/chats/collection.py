"""The chats of a user: made, imported, listed, read, renamed, switched, exported, deleted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal
from uuid import NAMESPACE_URL, uuid4, uuid5

from fastapi import Body, Query
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from sk_agents.chats import streams
from sk_agents.chats.archive import Archive, archive, restored
from sk_agents.chats.history import (
    DocumentResponse,
    HistoryCursor,
    chat_document,
    list_pieces,
)
from sk_agents.chats.passages import passages
from sk_agents.chats.render import PINNED, branch_views, chat_summary, tag_label, tags_of
from sk_agents.chats.requests import (
    CHAT_ID,
    SURFACE,
    Chat,
    ChatResources,
    Key,
    Optional,
    bring_chat,
    engine_of,
    request_digest,
)
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import Event, Noted
from sk_agents.engine.log.state import BIN, PLACE, ThreadState
from sk_agents.engine.models import NewThread, Thread
from sk_agents.engine.ports import ThreadQuery
from sk_agents.engine.threads.catalog import ThreadCatalog
from sk_agents.exceptions import (
    InvalidInput,
    LimitExceeded,
    StateCorrupt,
    TealError,
    ThreadExists,
    ThreadNotFound,
)
from sk_agents.http.body import body_of
from sk_agents.http.caller import Caller, RequestCaller, caller_of, prove_again
from sk_agents.http.ids import chat_id as checked_chat_id
from sk_agents.http.ids import idempotency_key
from sk_agents.http.limits import HeldStream, Quotas
from sk_agents.interactions import chat_thread_id
from sk_agents.wire.events import Place
from sk_agents.wire.requests import BranchChoice, ChatChange, NewChat, Tag
from sk_agents.wire.views import (
    AgentList,
    ChatPage,
    ChatSummary,
    PassageList,
    TagList,
    TagView,
)

MAX_PAGE = 100
# The tags of so many chats are counted, those changed last.
TAGGED_CHATS = 1_000
EXPORT_PAGE = 100
EXPORT_BYTES = 256 * 1024
# An event has about ten values, and a chat may have a hundred thousand of them.
MAX_ARCHIVE_VALUES = 2_000_000
# The label under which a chat remembers the request that made it.
REQUEST = "request"

_ARCHIVE = TypeAdapter(Archive)

Create = Callable[[str, NewThread], Awaitable[Thread]]
Cursor = Annotated[str | None, Query(max_length=128)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


@dataclass(frozen=True, slots=True)
class ChatEndpoints:
    resources: ChatResources

    async def agents(self) -> AgentList:
        """The agents a chat can be held with; the first one is the default."""
        return AgentList(agents=list(self.resources.views()))

    async def listing(
        self,
        request: Request,
        caller: RequestCaller,
        cursor: Cursor = None,
        limit: Limit = 50,
        q: Annotated[str | None, Query(max_length=200)] = None,
        place: Place = "list",
        pinned: Annotated[bool | None, Query(description="Unset: pinned or not.")] = None,
        tag: Annotated[Tag | None, Query(description="Only those with this tag.")] = None,
    ) -> ChatPage:
        """The caller's chats, the most recently changed first; with `q` those that mention it.

        Those in the archive and in the bin are listed with `place` alone.
        """
        labels: dict[str, Any] = {PLACE: None if place == "list" else place}
        if pinned is not None:
            labels[PINNED] = pinned or None
        if tag is not None:
            labels[tag_label(tag)] = True
        query = ThreadQuery(
            caller.user_id, surface=SURFACE, text=q, labels=labels, after=cursor, limit=limit
        )
        page = await engine_of(request.scope).catalog.threads(query)
        return ChatPage(chats=[chat_summary(thread) for thread in page.threads], next=page.after)

    async def tags(self, request: Request, caller: RequestCaller) -> TagList:
        """The tags of the caller's last 1,000 chats, those of most chats first."""
        catalog = engine_of(request.scope).catalog
        counted: Counter[str] = Counter()
        query = ThreadQuery(caller.user_id, surface=SURFACE, limit=MAX_PAGE)
        for _ in range(TAGGED_CHATS // MAX_PAGE):
            page = await catalog.threads(query)
            for thread in page.threads:
                counted.update(tags_of(thread.metadata))
            if page.after is None:
                break
            query = replace(query, after=page.after)
        most_first = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
        return TagList(tags=[TagView(tag=tag, chats=chats) for tag, chats in most_first])

    async def make(
        self,
        request: Request,
        caller: RequestCaller,
        key: Key,
        body: Annotated[NewChat, Body(default_factory=NewChat)],
    ) -> ChatSummary:
        """An empty chat. With an `Idempotency-Key` the same one each time."""
        labels = _labels(body.title, key, request_digest("make", body) if key else None)
        catalog = engine_of(request.scope).catalog
        new = _new(caller, body.chat_id, key, self.resources.agent(body.agent), labels)
        await bring_chat(request.scope, new.user_id, new.wire_id)
        return await _made(self.resources.quotas, catalog, new, catalog.make)

    async def read(
        self,
        chat: Chat,
        include: Annotated[
            Literal["superseded"] | None, Query(description="Show what was edited away too.")
        ] = None,
        state: Annotated[
            bool,
            Query(description="Whether each interaction has all that was said up to its end."),
        ] = True,
        before: Annotated[
            str | None,
            Query(max_length=160, description="The `next` of a newer part of the chat."),
        ] = None,
    ) -> Response:
        """The chat with its visible interactions; with `include=superseded` with all of them.

        Whole, unless its states have more than 128 MiB or it has more than 10,000 events: then
        from its newest part on, `truncated` is true, and `next` is the `before` of the older part.
        """
        cursor = HistoryCursor.of(before) if before is not None else None
        document = await chat_document(
            chat, with_superseded=include is not None, with_state=state, before=cursor
        )
        return DocumentResponse(document.pieces())

    async def change(self, chat: Chat, body: ChatChange) -> ChatSummary:
        """Give the chat another title or tags, pin it, or move it to the archive or the bin."""
        labels: dict[str, Any] = {"title": body.title} if body.title is not None else {}
        if body.pinned is not None:
            labels[PINNED] = body.pinned or None
        if body.place is not None:
            labels[PLACE] = None if body.place == "list" else body.place

        def changed(head: Thread) -> Mapping[str, Any]:
            if body.tags is None:
                return labels
            gone = {tag_label(tag): None for tag in tags_of(head.metadata)}
            return labels | gone | {tag_label(tag): True for tag in body.tags}

        catalog, user_id = chat.engine.catalog, chat.caller.user_id
        head = await catalog.relabel(chat.thread_id, user_id, changed)
        if body.place == BIN:
            # In this order: what would begin in between is refused already.
            await chat.engine.stop(chat.thread_id, user_id)
            head = await catalog.head(chat.thread_id, user_id)
        return chat_summary(head)

    async def delete(self, chat: Chat) -> Response:
        """Stop what runs in it and remove it for good."""
        await chat.engine.delete(chat.thread_id, chat.caller.user_id)
        self.resources.quotas.release_chat(chat.caller.user_id)
        return Response(status_code=204)

    async def events(self, request: Request, chat: Chat) -> Response:
        """Everything that happens in the chat, endlessly; without a cursor from now on. Before an
        interaction that begins, the caller's token must still be good."""
        known = await chat.engine.thread(chat.thread_id, chat.caller.user_id)
        position = await streams.place_of(request, chat, known)
        streams.check_accept(request.scope)
        after = known.state.next_seq - 1 if position is None else position
        renderer = await streams.renderer_at(chat, known, after)
        stream = streams.live_stream(
            chat,
            renderer,
            after=after,
            incarnation=known.incarnation,
            proven=partial(prove_again, request, chat.caller),
        )
        return HeldStream(self.resources.slots, chat.caller.user_id, stream)

    async def passages(
        self,
        chat: Chat,
        q: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 10,
    ) -> PassageList:
        """Where this text was said in the chat, the newest place first."""
        known = await chat.engine.thread(chat.thread_id, chat.caller.user_id)
        return PassageList(passages=await passages(known.state, q, limit) if q else [])

    async def branches(self, chat: Chat) -> Response:
        """Every interaction and what it follows: the conversation as a tree."""
        known = await chat.engine.thread(chat.thread_id, chat.caller.user_id)
        return _branches(known.state)

    async def switch(self, chat: Chat, body: BranchChoice) -> Response:
        """Show the branch of this interaction."""
        catalog = chat.engine.catalog
        known = await catalog.switch(chat.thread_id, chat.caller.user_id, body.interaction_id)
        return _branches(known.state)

    async def export(self, chat: Chat) -> Response:
        """The whole chat as a document for `POST /chats/import`."""
        known = await chat.engine.thread(chat.thread_id, chat.caller.user_id)
        await chat.engine.audit.note(_exporting(known.head, chat.caller))
        pages = _pages(chat.engine, known.head, known.state.next_seq - 1)
        return StreamingResponse(
            archive(known.head, known.state, pages),
            media_type="application/json",
            headers={"Content-Disposition": f"attachment; filename={chat.chat_id}.json"},
        )


async def import_parameter(
    chat_id: Annotated[Optional, Query(json_schema_extra=CHAT_ID)] = None,
) -> None:
    """Read by `ImportChat`."""


@dataclass(frozen=True, slots=True)
class ImportChat:
    """A chat from the document that `export` gave, as `chat_id` or under a new id."""

    resources: ChatResources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        key = idempotency_key(scope)
        given = request.query_params.get("chat_id")
        chosen = checked_chat_id(given) if given is not None else None
        body = await body_of(request, _ARCHIVE, images=True, max_values=MAX_ARCHIVE_VALUES)
        labels = _labels(body.title, key, request_digest(f"import {chosen}", body) if key else None)
        # A hundred thousand events take seconds; other requests go on.
        events = await asyncio.to_thread(restored, body, self.resources.has_agent)
        catalog = engine_of(scope).catalog
        agent = self.resources.agent(body.agent)
        new = _new(caller_of(scope), chosen, key, agent, labels)
        await bring_chat(scope, new.user_id, new.wire_id)
        try:
            made = await _made(
                self.resources.quotas,
                catalog,
                new,
                lambda id, new: catalog.restore(id, new, events),
            )
        except StateCorrupt as error:
            raise InvalidInput(f"This is no log of a chat: {error}") from error
        await JSONResponse(made.model_dump(mode="json"), 201)(scope, receive, send)


def _exporting(thread: Thread, caller: Caller) -> Noted:
    return Noted(
        what="exporting",
        who=caller.user_id,
        who_name=caller.name,
        subject=thread.thread_id,
        user_id=thread.user_id,
        agent=thread.agent or None,
        digest=thread.chain or None,
        details={"next_seq": thread.next_seq},
    )


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


async def _made(
    quotas: Quotas, catalog: ThreadCatalog, new: NewThread, create: Create
) -> ChatSummary:
    """The new chat, or the one that this very request has made before.

    Raises:
        ThreadExists: there is another one of this id.
        LimitExceeded: the user has as many chats as may be.
        InvalidInput: the request's key was used for another request.
    """
    thread_id = chat_thread_id(new.user_id, new.wire_id)
    try:
        await quotas.admit_chat(catalog, new.user_id)
    except LimitExceeded as refusal:
        return await _made_before(catalog, thread_id, new, refusal)
    try:
        return chat_summary(await create(thread_id, new))
    except TealError as refusal:
        quotas.release_chat(new.user_id)
        return await _made_before(catalog, thread_id, new, refusal)


async def _made_before(
    catalog: ThreadCatalog, thread_id: str, new: NewThread, refusal: TealError
) -> ChatSummary:
    """Raises `refusal` unless it is this request's own chat that is there."""
    ours = new.metadata.get(REQUEST)
    if ours is None or not isinstance(refusal, ThreadExists | LimitExceeded):
        raise refusal
    try:
        head = await catalog.head(thread_id, new.user_id)
    except ThreadNotFound:
        raise refusal from None
    first = head.metadata.get(REQUEST)
    if first is None or ours["key"] != first["key"]:
        raise refusal
    if ours != first:
        raise InvalidInput("This Idempotency-Key was used for another request.")
    return chat_summary(head)


def _new(
    caller: Caller, chat_id: str | None, key: str | None, agent: str, labels: dict[str, Any]
) -> NewThread:
    if chat_id is None:
        name = f"{SURFACE}\0{caller.user_id}\0{key}"
        chat_id = f"chat_{(uuid4() if key is None else uuid5(NAMESPACE_URL, name)).hex}"
    return NewThread(caller.user_id, wire_id=chat_id, surface=SURFACE, agent=agent, metadata=labels)


def _labels(title: str | None, key: str | None, digest: str | None) -> dict[str, Any]:
    labels: dict[str, Any] = {"title": title} if title else {}
    if key is not None:
        labels[REQUEST] = {"key": key, "digest": digest}
    return labels


def _branches(state: ThreadState) -> Response:
    views = branch_views(state)
    return DocumentResponse(list_pieces({"head": state.head_run}, "branches", views))
