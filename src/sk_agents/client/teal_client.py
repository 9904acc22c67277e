"""A server's chats, approvals and agents."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import date, datetime
from typing import Any, Literal, Self, TypedDict, Unpack
from uuid import uuid4

from sk_agents.client.connection import (
    GIVE_UP_AFTER,
    SILENCE_SECONDS,
    Record,
    RetryTiming,
    ServerConnection,
    ServerRequest,
    Token,
    path_of,
    record_of,
)
from sk_agents.client.errors import ProtocolError, TealServerError
from sk_agents.client.event_stream import StreamPosition, read_events
from sk_agents.client.reply import Reply, ReplySoFar
from sk_agents.wire.events import AnswerEvent, ApprovalRequired, Choice, Event, Rating
from sk_agents.wire.requests import OnBusy, OnDisconnect, Remember
from sk_agents.wire.views import (
    AgentView,
    ApprovalView,
    BranchList,
    BudgetReport,
    ChatSummary,
    ChatView,
    FeedbackRow,
    FilledPrompt,
    FoundInteraction,
    GrantView,
    InteractionView,
    McpSignInList,
    MessageTaken,
    MeView,
    Processed,
    PromptList,
    ResourceItems,
    ResourceList,
    SessionReport,
    SignInLink,
    TagList,
    UsageReport,
)

PAGE = 50
CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
Attachment = Mapping[str, Any]


class ReadInteraction(InteractionView):
    """An interaction as a client reads it; its state only if it was asked for, as it came."""

    final_agent_state: dict[str, Any] | None = None  # type: ignore[assignment]  # not taken apart

    @property
    def answer(self) -> str | None:
        """What the agent answered; `None` if it did not come to that."""
        said = [event.content for event in self.agent_events if isinstance(event, AnswerEvent)]
        return said[-1] if said else None


class History(ChatView):
    interactions: tuple[ReadInteraction, ...]


class AgentInfo(AgentView):
    tools: list[Any] = []


class RunOptions(TypedDict, total=False):
    """How to run. `key` is the idempotency key: the same key and message run once, even if they
    are sent by another process; one is made up if none is given."""

    on_busy: OnBusy | None
    on_disconnect: OnDisconnect | None
    key: str | None


class EditOptions(RunOptions, total=False):
    """`items` are images and text files that go with the message."""

    items: Sequence[Attachment] | None


class MessageOptions(EditOptions, total=False):
    """`agent` answers instead of the chat's own."""

    agent: str | None


class DecisionOptions(TypedDict, total=False):
    """Beside yes or no: a word to the model (`message`, or `reason`, which is the same), other
    arguments for the call, a standing approval for the tool; a `choice` for a call whose outcome is
    unknown, an `answer` to a question."""

    message: str | None
    reason: str | None
    edited_arguments: dict[str, Any] | None
    remember: Remember | None
    choice: Choice | None
    answer: Any


class Chat:
    """A handle; making one asks the server nothing. The first message makes the chat.

    Streams of events reconnect by themselves. Leaving one early closes its connection and nothing
    else: whether the interaction then goes on is up to its `on_disconnect`.
    """

    def __init__(self, connection: ServerConnection, chat_id: str) -> None:
        if not CHAT_ID.fullmatch(chat_id):
            raise ValueError("a chat id has 1 to 64 letters, digits, '-' and '_'")
        self.id = chat_id
        self._connection = connection

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
        """Have the same message answered again; a new branch of the chat."""
        return self._events(
            self._opening({}, options, "interactions", interaction_id, "regenerate")
        )

    async def ask(self, message: str, **options: Unpack[MessageOptions]) -> Reply:
        """Send a message and return the reply: at its end, or when it waits for a decision.

        The interaction goes on without a reader unless `on_disconnect` says otherwise.
        """
        options.setdefault("on_disconnect", "continue")
        position = self._opening({"user_message": message}, options, "interactions")
        return await self._drain(position, ReplySoFar())

    async def wait(self, reply: Reply) -> Reply:
        """Go on with a reply that waited, after deciding: to its end or the next decision."""
        position = StreamPosition(
            self.id, interaction_id=reply.interaction_id, last=reply.last_event_id
        )
        return await self._drain(position, ReplySoFar(reply))

    async def watch(
        self, interaction_id: str | None = None, *, after: str | int | None = None
    ) -> AsyncGenerator[Event, None]:
        """Read along without saying anything: an interaction to its end, or the chat without end.

        An interaction is read from its beginning, the chat from now on; `after` is the `event_id`
        to go on from, 0 for everything. A `seq` will do too, but then the server
        cannot check that it is still the same event.

        Raises:
            CursorLost: the event to go on from is not in the chat any more.
        """
        if interaction_id is None and after is None:
            # Not left to the server: a connection cut before its first event could not resume.
            past = await self.history(state=False)
            after = past.last_event_id or past.last_seq
        last = None if after is None else str(after)
        position = StreamPosition(self.id, interaction_id=interaction_id, last=last)
        async with aclosing(self._events(position)) as events:
            async for event in events:
                yield event

    async def approve(
        self, approval: ApprovalRequired, **options: Unpack[DecisionOptions]
    ) -> Processed:
        """Let the call run, exactly as it was shown or with `edited_arguments`."""
        return await self._decide(approval, True, options)

    async def reject(
        self, approval: ApprovalRequired, **options: Unpack[DecisionOptions]
    ) -> Processed:
        """Do not let the call run; `reason` tells the model why."""
        return await self._decide(approval, False, options)

    async def steer(self, interaction_id: str, message: str, *, key: str | None = None) -> str:
        """Say something to an interaction that is at work: its next call of the model gets it. The
        id of the message, which `SteeringDelivered` names.

        Raises:
            TealServerError: `already_terminal` if it has ended, `not_steerable` if it has not begun
                or was asked to stop. The message was not taken.
        """
        path = path_of("chats", self.id, "interactions", interaction_id, "steer")
        headers = {"Idempotency-Key": key or str(uuid4())}
        request = ServerRequest("POST", path, {"user_message": message}, headers=headers)
        return (await self._connection.read(MessageTaken, request)).message_id

    async def cancel(self, interaction_id: str, *, after: Literal["step"] | None = None) -> bool:
        """Ask an interaction to stop, at once or `after` the step that is at work; False if it had
        already ended."""
        path = path_of("chats", self.id, "interactions", interaction_id, "cancel")
        body = {"after": after} if after is not None else None
        try:
            await self._connection.call(ServerRequest("POST", path, body))
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
        return await self._connection.read(
            History, ServerRequest("GET", path_of("chats", self.id), query=query)
        )

    async def interactions(
        self, *, superseded: bool = False
    ) -> AsyncGenerator[ReadInteraction, None]:
        """All interactions, the newest first, however many there are."""
        before: str | None = None
        while True:
            part = await self.history(superseded=superseded, state=False, before=before)
            for interaction in reversed(part.interactions):
                yield interaction
            if part.next is None or part.next == before:
                return
            before = part.next

    async def interaction(self, interaction_id: str) -> ReadInteraction:
        path = path_of("chats", self.id, "interactions", interaction_id)
        return await self._connection.read(ReadInteraction, ServerRequest("GET", path))

    async def attachment(self, interaction_id: str, call_id: str, number: int = 0) -> bytes:
        """What a tool returned beside its text: the `number`th of the attachments that its
        `tool_result` names."""
        place = ("interactions", interaction_id, "attachments", call_id, str(number))
        request = ServerRequest("GET", path_of("chats", self.id, *place), is_json=False)
        return bytes(await self._connection.call(request) or b"")

    async def rate(
        self, interaction_id: str, rating: Rating | None, note: str | None = None
    ) -> None:
        """Say what an answer was worth; `None` takes it back. The people who run the server read
        the note."""
        path = path_of("chats", self.id, "interactions", interaction_id, "feedback")
        if rating is None:
            await self._connection.call(ServerRequest("DELETE", path))
            return
        body = {"rating": rating} if note is None else {"rating": rating, "note": note}
        await self._connection.call(ServerRequest("PUT", path, body))

    async def branches(self) -> BranchList:
        path = path_of("chats", self.id, "branches")
        return await self._connection.read(BranchList, ServerRequest("GET", path))

    async def switch(self, interaction_id: str) -> BranchList:
        """Show the branch that this interaction is on."""
        path = path_of("chats", self.id, "branch")
        request = ServerRequest("POST", path, {"interaction_id": interaction_id})
        return await self._connection.read(BranchList, request)

    async def rename(self, title: str) -> ChatSummary:
        request = ServerRequest("PATCH", path_of("chats", self.id), {"title": title})
        return await self._connection.read(ChatSummary, request)

    async def tag(self, tags: Sequence[str]) -> ChatSummary:
        """Give the chat these tags instead of those it has."""
        request = ServerRequest("PATCH", path_of("chats", self.id), {"tags": list(tags)})
        return await self._connection.read(ChatSummary, request)

    async def delete(self) -> None:
        path = path_of("chats", self.id)
        await self._connection.call(ServerRequest("DELETE", path, settled_by=frozenset({404})))

    async def export(self) -> dict[str, Any]:
        """The chat as one document, for `TealClient.import_chat`."""
        document = await self._connection.call(
            ServerRequest("GET", path_of("chats", self.id, "export"))
        )
        return dict(document)

    def _opening(self, body: dict[str, Any], options: RunOptions, *path: str) -> StreamPosition:
        given = {name: value for name, value in options.items() if value is not None}
        headers = {"Idempotency-Key": str(given.pop("key", None) or uuid4())}
        path_to = path_of("chats", self.id, *path)
        request = ServerRequest("POST", path_to, {**body, **given}, headers=headers)
        return StreamPosition(self.id, opening=request)

    async def _events(self, position: StreamPosition) -> AsyncGenerator[Event, None]:
        async with aclosing(read_events(self._connection, position)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def _drain(self, position: StreamPosition, so_far: ReplySoFar) -> Reply:
        async with aclosing(read_events(self._connection, position)) as batches:
            async for batch in batches:
                for event in batch:
                    so_far.add(event)
                if so_far.is_paused:
                    break
        return so_far.reply()

    async def _decide(
        self, approval: ApprovalRequired, approved: bool, options: DecisionOptions
    ) -> Processed:
        path = path_of("chats", self.id, "interactions", approval.interaction_id, "approve")
        request = decision_request(path, approved, approval, options)
        return await self._connection.read(Processed, request)


class TealClient:
    """Open it with `async with`. `token` may be a function: it is asked before every request. With
    `stored_sign_in(base_url)` it is the sign-in that `teal login` has stored.

    `user` says who you are to a development server, which believes it; a server that asks for
    proof refuses another name than the token's.

    What fails for a passing reason is tried again, with growing waits, until `give_up_after`
    seconds have gone by without a sign of life; 0 tries once. A connection that says nothing for
    `silence` seconds counts as lost.

    A `connection` of your own is used instead of all this; the client opens and closes it.

    Raises:
        ValueError: `base_url` is not the address of a server.
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        token: Token = None,
        user: str | None = None,
        give_up_after: float = GIVE_UP_AFTER,
        silence: float = SILENCE_SECONDS,
        pace: RetryTiming | None = None,
        connection: ServerConnection | None = None,
    ) -> None:
        self._connection = connection or ServerConnection(
            base_url,
            token=token,
            user=user,
            give_up_after=give_up_after,
            silence=silence,
            pace=pace or RetryTiming(),
        )

    async def __aenter__(self) -> Self:
        self._connection.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._connection.close()

    def chat(self, chat_id: str) -> Chat:
        """A handle; asks the server nothing.

        Raises:
            ValueError: no chat can have this id.
        """
        return Chat(self._connection, chat_id)

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
        request = ServerRequest(
            "POST",
            path_of("chats"),
            body,
            headers={"Idempotency-Key": str(uuid4())},
            is_repeatable=chat_id is None,
        )
        return await self._connection.read(ChatSummary, request)

    async def import_chat(
        self, document: dict[str, Any], *, chat_id: str | None = None, agent: str | None = None
    ) -> ChatSummary:
        """Make a chat out of what `Chat.export` gave, here or elsewhere; `agent` is its agent
        instead of the one it had, which this server may not have."""
        if agent is not None:
            document = {**document, "agent": agent}
        query = {} if chat_id is None else {"chat_id": chat_id}
        path = path_of("chats", "import")
        request = ServerRequest("POST", path, document, query=query, is_repeatable=False)
        return await self._connection.read(ChatSummary, request)

    def chats(
        self, text: str | None = None, *, tag: str | None = None
    ) -> AsyncGenerator[ChatSummary, None]:
        """All chats, those changed last first; with `text`, those in which it was said; with
        `tag`, those that have it."""
        wanted = {"q": text, "tag": tag}
        query = {name: value for name, value in wanted.items() if value is not None}
        return self._all("chats", ChatSummary, query)

    async def tags(self) -> TagList:
        """The tags of your chats, those of most chats first."""
        return await self._connection.read(TagList, ServerRequest("GET", path_of("tags")))

    def feedback(
        self, *, since: datetime | None = None, agent: str | None = None
    ) -> AsyncGenerator[FeedbackRow, None]:
        """What users think of answers, in no order: for operators."""
        wanted = {"since": since.isoformat() if since is not None else None, "agent": agent}
        query = {name: value for name, value in wanted.items() if value is not None}
        return self._all("feedback", FeedbackRow, query)

    async def find(self, interaction_id: str) -> FoundInteraction:
        """One of your interactions, in whichever chat it is: `chat_id` says in which."""
        path = path_of("interactions", interaction_id)
        return await self._connection.read(FoundInteraction, ServerRequest("GET", path))

    def approvals(self) -> AsyncGenerator[ApprovalView, None]:
        """Every call that waits for a decision, in your chats or by you as an approver; of one
        with a `review`, `may_decide` says whether you are one of those who decide."""
        return self._all("approvals", ApprovalView, {})

    def grants(self) -> AsyncGenerator[GrantView, None]:
        """The standing approvals you gave."""
        return self._all("grants", GrantView, {})

    async def agents(self) -> tuple[AgentInfo, ...]:
        """The agents a chat can be held with, the default one first."""
        document = await self._connection.call(ServerRequest("GET", path_of("agents")))
        return tuple(record_of(AgentInfo, entry) for entry in _entries(document, "agents"))

    async def me(self) -> MeView:
        """Who you are to the server."""
        return await self._connection.read(MeView, ServerRequest("GET", path_of("me")))

    async def prompts(self, agent: str | None = None) -> PromptList:
        """The prompts that the MCP servers of the agent offer."""
        return await self._connection.read(
            PromptList, ServerRequest("GET", path_of("prompts"), query=_agent_query(agent))
        )

    async def fill_prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        agent: str | None = None,
    ) -> FilledPrompt:
        """The prompt as a message to say: its text, and its `items`."""
        body = {"server": server, "name": name, "arguments": dict(arguments or {}), "agent": agent}
        request = ServerRequest("POST", path_of("prompts", "fill"), body)
        return await self._connection.read(FilledPrompt, request)

    async def resources(self, agent: str | None = None) -> ResourceList:
        """What the MCP servers of the agent have to read."""
        return await self._connection.read(
            ResourceList, ServerRequest("GET", path_of("resources"), query=_agent_query(agent))
        )

    async def read_resource(
        self, server: str, uri: str, *, agent: str | None = None
    ) -> ResourceItems:
        """What a resource holds: `items` of a message."""
        body = {"server": server, "uri": uri, "agent": agent}
        request = ServerRequest("POST", path_of("resources", "read"), body)
        return await self._connection.read(ResourceItems, request)

    async def sign_ins(self, agent: str | None = None) -> McpSignInList:
        """The MCP servers of the agent at which you sign in yourself."""
        return await self._connection.read(
            McpSignInList, ServerRequest("GET", path_of("sign-ins"), query=_agent_query(agent))
        )

    async def begin_sign_in(self, server: str, *, agent: str | None = None) -> SignInLink:
        """Where to sign in to an MCP server, in a browser; calls that wait for it go on then."""
        body = {"server": server, "agent": agent}
        request = ServerRequest("POST", path_of("sign-ins"), body)
        return await self._connection.read(SignInLink, request)

    async def sign_out(self, server: str, *, agent: str | None = None) -> None:
        """Have your tokens for an MCP server forgotten."""
        path = path_of("sign-ins", server)
        await self._connection.call(ServerRequest("DELETE", path, query=_agent_query(agent)))

    async def usage(self, since: date | None = None, *, all_users: bool = False) -> UsageReport:
        """What models have used for you since that day, or 30 days ago; for all users if you are
        an operator."""
        query = {"since": since.isoformat()} if since is not None else {}
        if all_users:
            query["all"] = "true"
        return await self._connection.read(
            UsageReport, ServerRequest("GET", path_of("usage"), query=query)
        )

    async def budgets(self, *, all_users: bool = False) -> BudgetReport:
        """What you may spend and what is left of it; of all users, agents and the server if you are
        an operator."""
        query = {"all": "true"} if all_users else {}
        return await self._connection.read(
            BudgetReport, ServerRequest("GET", path_of("budgets"), query=query)
        )

    async def sessions(
        self, since: datetime | None = None, *, user: str | None = None, limit: int = 200
    ) -> SessionReport:
        """Who is at work, for operators: conversations that run or wait, and those that changed
        since then, or within an hour."""
        query = {"limit": str(limit)}
        if since is not None:
            query["since"] = since.isoformat()
        if user is not None:
            query["user"] = user
        return await self._connection.read(
            SessionReport, ServerRequest("GET", path_of("sessions"), query=query)
        )

    async def approval(self, approval_id: str) -> ApprovalView:
        return await self._connection.read(
            ApprovalView, ServerRequest("GET", path_of("approvals", approval_id))
        )

    async def approve(
        self, approval: ApprovalView | str, **options: Unpack[DecisionOptions]
    ) -> Processed:
        """Decide about a call wherever it was made; see `Chat.approve`."""
        return await self._decide(approval, True, options)

    async def reject(
        self, approval: ApprovalView | str, **options: Unpack[DecisionOptions]
    ) -> Processed:
        """Decide about a call wherever it was made; see `Chat.reject`."""
        return await self._decide(approval, False, options)

    async def withdraw_vote(self, approval: ApprovalView | str) -> None:
        """Take your vote back while the call is not decided about."""
        approval_id = approval if isinstance(approval, str) else approval.approval_id
        path = path_of("approvals", approval_id, "vote")
        await self._connection.call(ServerRequest("DELETE", path))

    async def revoke(self, grant: GrantView | str) -> None:
        """Take a standing approval back."""
        grant_id = grant if isinstance(grant, str) else grant.grant_id
        path = path_of("grants", grant_id)
        await self._connection.call(ServerRequest("DELETE", path, settled_by=frozenset({404})))

    async def _decide(
        self, approval: ApprovalView | str, approved: bool, options: DecisionOptions
    ) -> Processed:
        approval_id = approval if isinstance(approval, str) else approval.approval_id
        path = path_of("approvals", approval_id)
        request = decision_request(path, approved, approval, options)
        return await self._connection.read(Processed, request)

    async def _all(
        self, name: str, kind: type[Record], query: dict[str, str]
    ) -> AsyncGenerator[Record, None]:
        cursor: str | None = None
        while True:
            page = {**query, "limit": str(PAGE)}
            if cursor is not None:
                page["cursor"] = cursor
            document = await self._connection.call(ServerRequest("GET", path_of(name), query=page))
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


def decision_request(
    path: str,
    approved: bool,
    approval: ApprovalRequired | ApprovalView | str,
    options: DecisionOptions,
) -> ServerRequest:
    """Names the approval in the body, and what was shown of it: nothing else can be approved.

    Raises:
        TypeError: there is no such option.
    """
    unknown = options.keys() - DecisionOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(DecisionOptions.__annotations__)
        raise TypeError(f"a decision has no {', '.join(sorted(unknown))}; it has {known}")
    body: dict[str, Any] = {"approved": approved}
    body.update({name: value for name, value in options.items() if value is not None})
    if (reason := body.pop("reason", None)) is not None:
        body.setdefault("message", reason)
    if not isinstance(approval, str) and approval.digest:
        body["digest"] = approval.digest
    if isinstance(approval, ApprovalRequired):
        body["approval_id"] = approval.approval_id
    return ServerRequest("POST", path, body, headers={"Idempotency-Key": str(uuid4())})


def _agent_query(agent: str | None) -> dict[str, str]:
    return {} if agent is None else {"agent": agent}
