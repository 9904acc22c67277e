"""A server's chats, approvals and agents."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Self, Unpack
from uuid import uuid4

from sk_agents.client.chat import Chat
from sk_agents.client.decision import Verdict, decision_request
from sk_agents.client.errors import ProtocolError
from sk_agents.client.link import SILENCE_SECONDS, Link, Request, Token, path_of
from sk_agents.client.patience import GIVE_UP_AFTER, Pace
from sk_agents.client.records import (
    AgentInfo,
    ChatSummary,
    Decided,
    Grant,
    PendingApproval,
    Record,
    record_of,
)

PAGE = 50


class TealClient:
    """Open it with `async with`. `token` may be a function: it is asked before every request.

    `user` says who you are to a development server, which believes it; a server that asks for
    proof refuses another name than the token's.

    What fails for a passing reason is tried again, with growing waits, until `give_up_after`
    seconds have gone by without a sign of life; 0 tries once. A connection that says nothing for
    `silence` seconds counts as lost.

    Raises:
        ValueError: `base_url` is not the address of a server.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: Token = None,
        user: str | None = None,
        give_up_after: float = GIVE_UP_AFTER,
        silence: float = SILENCE_SECONDS,
        pace: Pace | None = None,
    ) -> None:
        self._link = Link(
            base_url,
            token=token,
            user=user,
            give_up_after=give_up_after,
            silence=silence,
            pace=pace or Pace(),
        )

    async def __aenter__(self) -> Self:
        self._link.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._link.close()

    def chat(self, chat_id: str) -> Chat:
        """A handle; asks the server nothing.

        Raises:
            ValueError: no chat can have this id.
        """
        return Chat(self._link, chat_id)

    async def create(
        self,
        chat_id: str | None = None,
        *,
        agent: str | None = None,
        title: str | None = None,
    ) -> ChatSummary:
        """Make a chat before its first message: with a title, or with another agent."""
        given = {"chat_id": chat_id, "agent": agent, "title": title}
        body = {name: value for name, value in given.items() if value is not None}
        # The key makes an id: the same one each time. A given id would be taken at the second try.
        request = Request(
            "POST",
            path_of("chats"),
            body,
            headers={"Idempotency-Key": str(uuid4())},
            is_repeatable=chat_id is None,
        )
        return record_of(ChatSummary, await self._link.call(request))

    async def import_chat(
        self, document: dict[str, Any], *, chat_id: str | None = None
    ) -> ChatSummary:
        """Make a chat out of what `Chat.export` gave, here or elsewhere."""
        query = {} if chat_id is None else {"chat_id": chat_id}
        path = path_of("chats", "import")
        request = Request("POST", path, document, query=query, is_repeatable=False)
        return record_of(ChatSummary, await self._link.call(request))

    def chats(self, text: str | None = None) -> AsyncGenerator[ChatSummary, None]:
        """All chats, those changed last first; with `text`, those in which it was said."""
        return self._all("chats", ChatSummary, {} if text is None else {"q": text})

    def approvals(self) -> AsyncGenerator[PendingApproval, None]:
        """Every call that waits for a decision of yours."""
        return self._all("approvals", PendingApproval, {})

    def grants(self) -> AsyncGenerator[Grant, None]:
        """The standing approvals you gave."""
        return self._all("grants", Grant, {})

    async def agents(self) -> tuple[AgentInfo, ...]:
        """The agents a chat can be held with, the default one first."""
        document = await self._link.call(Request("GET", path_of("agents")))
        return tuple(record_of(AgentInfo, entry) for entry in _entries(document, "agents"))

    async def approval(self, approval_id: str) -> PendingApproval:
        document = await self._link.call(Request("GET", path_of("approvals", approval_id)))
        return record_of(PendingApproval, document)

    async def approve(self, approval: PendingApproval | str, **verdict: Unpack[Verdict]) -> Decided:
        """Decide about a call wherever it was made; see `Chat.approve`."""
        return await self._decide(approval, True, verdict)

    async def reject(self, approval: PendingApproval | str, **verdict: Unpack[Verdict]) -> Decided:
        """Decide about a call wherever it was made; see `Chat.reject`."""
        return await self._decide(approval, False, verdict)

    async def revoke(self, grant: Grant | str) -> None:
        """Take a standing approval back."""
        grant_id = grant if isinstance(grant, str) else grant.grant_id
        path = path_of("grants", grant_id)
        await self._link.call(Request("DELETE", path, settled_by=frozenset({404})))

    async def _decide(
        self, approval: PendingApproval | str, approved: bool, verdict: Verdict
    ) -> Decided:
        approval_id = approval if isinstance(approval, str) else approval.approval_id
        path = path_of("approvals", approval_id)
        request = decision_request(path, approved, approval, verdict)
        return record_of(Decided, await self._link.call(request))

    async def _all(
        self, name: str, kind: type[Record], query: dict[str, str]
    ) -> AsyncGenerator[Record, None]:
        cursor: str | None = None
        while True:
            page = {**query, "limit": str(PAGE)}
            if cursor is not None:
                page["cursor"] = cursor
            document = await self._link.call(Request("GET", path_of(name), query=page))
            for entry in _entries(document, name):
                yield record_of(kind, entry)
            following = document.get("next")
            if following is None:
                return
            if following == cursor:
                raise ProtocolError("the server's list does not go on")
            cursor = following


def _entries(document: Any, name: str) -> list[Any]:
    entries = document.get(name) if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ProtocolError(f"the server sent no list of {name}")
    return entries
