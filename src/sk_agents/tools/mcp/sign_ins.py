"""What is kept of users' sign-ins at MCP servers: tokens, and what is needed to get and renew them.

Each document is a thread of its own in the store of the chats: there it is encrypted with a key of
its own, seen by every instance, changed by one conditional commit at a time, and gone once it is
deleted. No API lists such threads.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from sk_agents.engine.events import ThreadChanged
from sk_agents.engine.log.commits import Absent, Commit, Unchanged
from sk_agents.engine.models import NewThread, Thread
from sk_agents.engine.ports import Count, Ids, Store
from sk_agents.exceptions import (
    Conflict,
    CounterFull,
    SequenceConflict,
    ThreadExists,
    ThreadNotFound,
)

SURFACE = "mcp_sign_ins"
# Documents of no user: nobody can be called so, since an id has no zero character.
SERVER = "\x00mcp"
_KEY = "document"
RACES = 20
# A log that has grown so long is begun again: only its last event says anything.
MOST_EVENTS = 200
LOCK_SECONDS = 30.0
LOOK_SECONDS = 0.1


class _Kept(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    v: Literal[1] = 1


class PendingSignIn(_Kept):
    """One that a user has begun: `browser` is the secret of the browser that went on with it."""

    url: str
    verifier: str
    redirect_uri: str
    token_endpoint: str
    issuer: str
    names_issuer: bool
    resource: str | None
    scope: str | None
    client: str
    expires_at: float
    browser: str | None = None


class KeptSignIn(_Kept):
    """A user at a server. `client` is the client's registration as JSON.

    `wanted_scope` is what the server has asked for since, beyond what was granted.
    """

    server: str
    access_token: str | None = None
    refresh_token: str | None = None
    expires_at: float | None = None
    scope: str | None = None
    wanted_scope: str | None = None
    token_endpoint: str = ""
    resource: str | None = None
    client: str = ""
    pending: dict[str, PendingSignIn] = {}

    @property
    def is_signed_in(self) -> bool:
        return self.access_token is not None


class SignInRecords:
    """`Conflict` is raised by what changes a document if other writers are always faster."""

    def __init__(self, store: Store, ids: Ids) -> None:
        self._store = store
        self._ids = ids

    async def sign_in(self, user_id: str, server: str) -> KeptSignIn:
        """Of this user, at the server of this identity."""
        return await self.at(sign_in_id(user_id, server)) or KeptSignIn(server=server)

    async def at(self, document_id: str) -> KeptSignIn | None:
        head = await self._head(document_id)
        return _read(head, KeptSignIn) if head is not None else None

    async def user_of(self, document_id: str) -> str | None:
        head = await self._head(document_id)
        return head.user_id if head is not None and head.surface == SURFACE else None

    async def change(
        self, user_id: str, server: str, changed: Callable[[KeptSignIn], KeptSignIn]
    ) -> KeptSignIn:
        """What it is after the change, which may be made again on a newer document."""
        document_id = sign_in_id(user_id, server)
        for _ in range(RACES):
            head = await self._head(document_id)
            before = _read(head, KeptSignIn) if head is not None else None
            after = changed(before or KeptSignIn(server=server))
            if await self._written(document_id, user_id, head, after):
                return after
        raise Conflict(thread_id=document_id)

    async def forget(self, user_id: str, server: str) -> None:
        for _ in range(RACES):
            head = await self._head(sign_in_id(user_id, server))
            if head is None or await self._deleted(head):
                return
        raise Conflict

    async def text(self, name: str) -> str | None:
        """A document of no user."""
        head = await self._head(_id(SERVER, name))
        return str(head.metadata.get(_KEY)) if head is not None else None

    async def set_text(self, name: str, text: str) -> None:
        for _ in range(RACES):
            head = await self._head(_id(SERVER, name))
            if await self._written(_id(SERVER, name), SERVER, head, text):
                return
        raise Conflict

    @asynccontextmanager
    async def lock(self, user_id: str, server: str) -> AsyncIterator[None]:
        """One at a time over all processes; a holder that is gone loses it after a while."""
        key = f"mcp_sign_in:{sign_in_id(user_id, server)}"
        for _ in range(int(LOCK_SECONDS / LOOK_SECONDS)):
            try:
                await self._store.count([Count(key, 1, LOCK_SECONDS, at_most=1)])
                break
            except CounterFull:
                await asyncio.sleep(LOOK_SECONDS)
        else:
            raise Conflict("The sign-in is being renewed elsewhere.")
        try:
            yield
        finally:
            await self._store.count([Count(key, -1, LOCK_SECONDS)])

    async def _head(self, document_id: str) -> Thread | None:
        try:
            head = await self._store.thread(document_id)
        except ThreadNotFound:
            return None
        return head if head.surface == SURFACE else None

    async def _written(
        self, document_id: str, user_id: str, head: Thread | None, document: _Kept | str
    ) -> bool:
        """False if another writer was faster."""
        text = document if isinstance(document, str) else document.model_dump_json()
        event = ThreadChanged(metadata={_KEY: text})
        if head is not None and head.next_seq > MOST_EVENTS:
            if not await self._deleted(head):
                return False
            head = None
        guard = (
            Unchanged(head.next_seq)
            if head is not None
            else Absent(NewThread(user_id=user_id, surface=SURFACE))
        )
        incarnation = head.incarnation if head is not None else None
        commit = Commit(document_id, self._ids.new(), guard, (event,), incarnation=incarnation)
        try:
            await self._store.commit(commit)
        except (SequenceConflict, ThreadExists, ThreadNotFound):
            return False
        return True

    async def _deleted(self, head: Thread) -> bool:
        try:
            await self._store.delete(
                head.thread_id, next_seq=head.next_seq, incarnation=head.incarnation
            )
        except (SequenceConflict, ThreadNotFound):
            return False
        return True


def sign_in_id(user_id: str, server: str) -> str:
    return _id(user_id, f"sign_in\0{server}")


def _id(user_id: str, name: str) -> str:
    digest = hashlib.sha256(f"{SURFACE}\0{user_id}\0{name}".encode(errors="surrogatepass"))
    return str(UUID(digest.hexdigest()[:32]))


def _read(head: Thread, kind: type[KeptSignIn]) -> KeptSignIn | None:
    try:
        return kind.model_validate_json(str(head.metadata.get(_KEY)))
    except ValidationError:
        # Of a newer version, or damaged: the user signs in again.
        return None
