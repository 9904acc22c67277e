"""One chat of a server: say something, read along, decide, look back."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypedDict, Unpack
from uuid import uuid4

from sk_agents.client.decision import Verdict, decision_request
from sk_agents.client.errors import TealServerError
from sk_agents.client.events import ApprovalRequired, Event
from sk_agents.client.following import Place, follow
from sk_agents.client.link import Link, Request, path_of
from sk_agents.client.records import (
    Branches,
    ChatSummary,
    Decided,
    History,
    Interaction,
    record_of,
)
from sk_agents.client.reply import Reply, ReplySoFar

CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
Item = Mapping[str, Any]


class RunOptions(TypedDict, total=False):
    """How to run. `key` is the idempotency key: the same key and message run once, even if they
    are sent by another process; one is made up if none is given."""

    on_busy: Literal["reject", "enqueue", "interrupt"] | None
    on_disconnect: Literal["cancel", "continue"] | None
    key: str | None


class EditOptions(RunOptions, total=False):
    """`items` are images and text files that go with the message."""

    items: Sequence[Item] | None


class MessageOptions(EditOptions, total=False):
    """`agent` answers instead of the chat's own."""

    agent: str | None


class Chat:
    """A handle; making one asks the server nothing. The first message makes the chat.

    Streams of events reconnect by themselves. Leaving one early closes its connection and nothing
    else: whether the interaction then goes on is up to its `on_disconnect`.
    """

    def __init__(self, link: Link, chat_id: str) -> None:
        if not CHAT_ID.fullmatch(chat_id):
            raise ValueError("a chat id has 1 to 64 letters, digits, '-' and '_'")
        self.id = chat_id
        self._link = link

    def say(self, message: str, **options: Unpack[MessageOptions]) -> AsyncGenerator[Event, None]:
        """Send a message and read what the agent does, to the end of the interaction."""
        return self._events(self._opening({"user_message": message}, options, "interactions"))

    def edit(
        self, interaction_id: str, message: str, **options: Unpack[EditOptions]
    ) -> AsyncGenerator[Event, None]:
        """Say `message` instead of what the interaction began with; a new branch of the chat."""
        body = {"new_user_message": message}
        return self._events(self._opening(body, options, "interactions", interaction_id, "edit"))

    def regenerate(
        self, interaction_id: str, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """Have the same message answered anew; a new branch of the chat."""
        return self._events(
            self._opening({}, options, "interactions", interaction_id, "regenerate")
        )

    async def ask(self, message: str, **options: Unpack[MessageOptions]) -> Reply:
        """Send a message and return the reply: at its end, or when it waits for a decision.

        The interaction goes on without a reader unless `on_disconnect` says otherwise.
        """
        options.setdefault("on_disconnect", "continue")
        place = self._opening({"user_message": message}, options, "interactions")
        return await self._drain(place, ReplySoFar())

    async def wait(self, reply: Reply) -> Reply:
        """Go on with a reply that waited, after deciding: to its end or the next decision."""
        place = Place(self.id, interaction_id=reply.interaction_id, last=reply.last_event_id)
        return await self._drain(place, ReplySoFar(reply))

    async def watch(
        self, interaction_id: str | None = None, *, after: str | int | None = None
    ) -> AsyncGenerator[Event, None]:
        """Read along without saying anything: an interaction to its end, or the chat for ever.

        An interaction is read from its beginning, the chat from now on; `after` is the `event_id`
        to go on from, 0 for everything. A `seq` will do too, but the server cannot tell then
        whether it is still the same event.

        Raises:
            CursorLost: the event to go on from is not in the chat any more.
        """
        if interaction_id is None and after is None:
            # Not left to the server: a connection cut before its first event could not resume.
            past = await self.history(state=False)
            after = past.last_event_id or past.last_seq
        last = None if after is None else str(after)
        place = Place(self.id, interaction_id=interaction_id, last=last)
        async with aclosing(self._events(place)) as events:
            async for event in events:
                yield event

    async def approve(self, approval: ApprovalRequired, **verdict: Unpack[Verdict]) -> Decided:
        """Let the call run, exactly as it was shown or with `edited_arguments`."""
        return await self._decide(approval, True, verdict)

    async def reject(self, approval: ApprovalRequired, **verdict: Unpack[Verdict]) -> Decided:
        """Do not let the call run; `message` tells the model why."""
        return await self._decide(approval, False, verdict)

    async def cancel(self, interaction_id: str) -> bool:
        """Ask an interaction to stop; False if it had already ended."""
        path = path_of("chats", self.id, "interactions", interaction_id, "cancel")
        try:
            await self._link.call(Request("POST", path))
        except TealServerError as refusal:
            if refusal.code == "already_terminal":
                return False
            raise
        return True

    async def history(
        self, *, superseded: bool = False, state: bool = True, before: str | None = None
    ) -> History:
        """The chat with its interactions; `superseded` adds those of other branches, `state=False`
        leaves out what the model was sent, `before` asks for an older part of a long chat."""
        query = {"include": "superseded"} if superseded else {}
        if not state:
            query["state"] = "false"
        if before is not None:
            query["before"] = before
        document = await self._link.call(Request("GET", path_of("chats", self.id), query=query))
        return record_of(History, document)

    async def interactions(self, *, superseded: bool = False) -> AsyncGenerator[Interaction, None]:
        """All interactions, the newest first, however many there are."""
        before: str | None = None
        while True:
            part = await self.history(superseded=superseded, state=False, before=before)
            for interaction in reversed(part.interactions):
                yield interaction
            if part.next is None or part.next == before:
                return
            before = part.next

    async def interaction(self, interaction_id: str) -> Interaction:
        path = path_of("chats", self.id, "interactions", interaction_id)
        return record_of(Interaction, await self._link.call(Request("GET", path)))

    async def branches(self) -> Branches:
        path = path_of("chats", self.id, "branches")
        return record_of(Branches, await self._link.call(Request("GET", path)))

    async def switch(self, interaction_id: str) -> Branches:
        """Show the branch that this interaction is on."""
        path = path_of("chats", self.id, "branch")
        request = Request("POST", path, {"interaction_id": interaction_id})
        return record_of(Branches, await self._link.call(request))

    async def rename(self, title: str) -> ChatSummary:
        request = Request("PATCH", path_of("chats", self.id), {"title": title})
        return record_of(ChatSummary, await self._link.call(request))

    async def delete(self) -> None:
        path = path_of("chats", self.id)
        await self._link.call(Request("DELETE", path, settled_by=frozenset({404})))

    async def export(self) -> dict[str, Any]:
        """The chat as one document, for `TealClient.import_chat`."""
        document = await self._link.call(Request("GET", path_of("chats", self.id, "export")))
        return dict(document)

    def _opening(self, body: dict[str, Any], options: RunOptions, *path: str) -> Place:
        given = {name: value for name, value in options.items() if value is not None}
        key = str(given.pop("key", None) or uuid4())
        request = Request(
            "POST",
            path_of("chats", self.id, *path),
            {**body, **given},
            headers={"Idempotency-Key": key},
        )
        return Place(self.id, opening=request)

    async def _events(self, place: Place) -> AsyncGenerator[Event, None]:
        async with aclosing(follow(self._link, place)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def _drain(self, place: Place, so_far: ReplySoFar) -> Reply:
        async with aclosing(follow(self._link, place)) as batches:
            async for batch in batches:
                for event in batch:
                    so_far.add(event)
                if so_far.is_paused:
                    break
        return so_far.reply()

    async def _decide(
        self, approval: ApprovalRequired, approved: bool, verdict: Verdict
    ) -> Decided:
        path = path_of("chats", self.id, "interactions", approval.interaction_id, "approve")
        request = decision_request(path, approved, approval, verdict)
        return record_of(Decided, await self._link.call(request))
