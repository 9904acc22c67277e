"""New chats: empty ones, and those that come from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.requests import Request

from sk_agents.chats.archive import Archive, restored
from sk_agents.chats.desk import SURFACE, Desk, engine_of, request_digest
from sk_agents.chats.render import chat_summary
from sk_agents.engine.models import NewThread, Thread
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
from sk_agents.http.caller import Caller, acting_caller
from sk_agents.http.idempotency import idempotency_key
from sk_agents.http.ids import chat_id as checked_chat_id
from sk_agents.http.quotas import Quotas
from sk_agents.interactions import chat_thread_id
from sk_agents.wire.requests import NewChat
from sk_agents.wire.views import ChatSummary

# The label under which a chat remembers the request that made it.
REQUEST = "request"

_NEW = TypeAdapter(NewChat)
_ARCHIVE = TypeAdapter(Archive)
# An event has about ten values, and a chat may have a hundred thousand of them.
MAX_ARCHIVE_VALUES = 2_000_000

Create = Callable[[str, NewThread], Awaitable[Thread]]


def making_routes(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["chats"])

    @router.post("/chats", status_code=201)
    async def make(request: Request) -> ChatSummary:
        """An empty chat. With an `Idempotency-Key` the same one each time."""
        caller = await acting_caller(request)
        key = idempotency_key(request.scope)
        body = await body_of(request, _NEW, optional=True)
        labels = _labels(body.title, key, request_digest("make", body) if key else None)
        catalog = engine_of(request.scope).catalog
        new = _new(caller, body.chat_id, key, desk.agent(body.agent), labels)
        return await _made(desk.quotas, catalog, new, catalog.make)

    @router.post("/chats/import", status_code=201)
    async def bring(request: Request, chat_id: str | None = None) -> ChatSummary:
        """A chat from the document that `export` gave, as `chat_id` or under a new id."""
        caller = await acting_caller(request)
        key = idempotency_key(request.scope)
        chosen = checked_chat_id(chat_id) if chat_id is not None else None
        body = await body_of(request, _ARCHIVE, images=True, max_values=MAX_ARCHIVE_VALUES)
        labels = _labels(body.title, key, request_digest(f"import {chosen}", body) if key else None)
        # A hundred thousand events take seconds; others go on meanwhile.
        events = await asyncio.to_thread(restored, body, desk.has_agent)
        catalog = engine_of(request.scope).catalog
        new = _new(caller, chosen, key, desk.agent(body.agent), labels)
        try:
            return await _made(
                desk.quotas, catalog, new, lambda id, new: catalog.restore(id, new, events)
            )
        except StateCorrupt as error:
            raise InvalidInput(f"This is no log of a chat: {error}") from error

    return router


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
