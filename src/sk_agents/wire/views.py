"""What the server answers: chats, interactions, branches, approvals, grants, agents, usage,
budgets; to operators who is at work, and who did what."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from sk_agents.wire.events import (
    SOMETIMES,
    AgentEvent,
    AskedCall,
    CostView,
    Decider,
    InteractionStatus,
    Place,
    Rating,
    Sometimes,
    UsageView,
    WireModel,
)


class ErrorView(WireModel):
    """Why an interaction failed."""

    code: str
    message: str = ""
    correlation_id: str | None = None


class ItemView(WireModel):
    content_type: Literal["text", "image", "pdf"]
    content: str
    name: str | None


class DecisionView(WireModel):
    """How an approval was decided."""

    approved: bool
    by: Decider
    decided_by: str | None
    decided_by_name: Sometimes[str] = None
    decided_at: str
    message: str | None
    edited_arguments: dict[str, Any] | None
    choice: str | None


class SharedTurn(WireModel):
    """A message that the agent had before a call, and its answer, for those who decide about it."""

    user_message: str
    answer: str | None = None


class ApprovalView(AskedCall):
    """An approval, in whichever chat it was asked. `requested_by` is what the person is called
    whose message led to the call; `chat_id` and `chat_title` are empty for everyone else. Of an
    approval with a `review`, `may_decide` says whether the caller is one of those who decide now,
    `my_vote` what they said; `conversation` is there if the rule shares it."""

    chat_id: str
    agent: str = ""
    state: str = "pending"
    requested_at: str = ""
    requested_by: str = ""
    chat_title: str = ""
    may_decide: Sometimes[bool] = None
    my_vote: Sometimes[bool] = None
    conversation: Sometimes[tuple[SharedTurn, ...]] = None
    late_result: Sometimes[str] = None
    decision: Sometimes[DecisionView] = None


class ChatMessage(WireModel):
    """A chat message in OpenAI's form: what it does not have, it does not show."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None

    @model_serializer(mode="wrap")
    def _without_absent_fields(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if value is not None}


class AgentState(WireModel):
    messages: list[ChatMessage]


class SteeringView(WireModel):
    """What the user said while the agent worked. `delivered` says whether a call of the model got
    it; one that ended before did not. `after_events` is how many of the `agent_events` were there
    when it was said, `delivered_after_events` how many when that call of the model began."""

    message_id: str
    content: str
    at: str
    delivered: bool = False
    after_events: int = 0
    delivered_after_events: int | None = None


class Interaction(WireModel):
    """One message and everything the agent did about it."""

    id: str
    status: InteractionStatus
    user_message: str
    agent_events: list[AgentEvent] = []
    final_agent_state: AgentState | None = None
    """Everything said up to and including this interaction; None until it has ended."""
    created_at: str
    completed_at: str | None = None
    parent_id: Annotated[str | None, SOMETIMES, Field(exclude_if=lambda parent: parent is None)] = (
        None
    )
    """The interaction it follows."""
    edits: Annotated[str | None, SOMETIMES, Field(exclude_if=lambda edited: edited is None)] = None
    """The interaction it was made from, by an edit or by being answered again."""
    steering: Annotated[
        tuple[SteeringView, ...], SOMETIMES, Field(exclude_if=lambda said: not said)
    ] = ()
    """What was said while it was at work."""


class FeedbackView(WireModel):
    """What the user thinks of an answer. `note` is for those who run the server."""

    rating: Rating
    note: str | None
    at: str


class InteractionView(Interaction):
    agent: str = ""
    items: tuple[ItemView, ...] = ()
    parent_id: str | None = None
    edits: str | None = None
    superseded: bool = False
    usage: UsageView = Field(default_factory=UsageView)
    cost: CostView | None = None
    error: ErrorView | None = None
    partial: str | None = None
    """What it had said when it was stopped."""
    approvals: tuple[ApprovalView, ...] = ()
    """Those that wait for a decision."""
    steering: tuple[SteeringView, ...] = ()
    stopping: bool = False
    """Whether it ends after the step that is at work, because it was asked to."""
    feedback: FeedbackView | None = None


class FoundInteraction(InteractionView):
    """An interaction that was asked for by its id alone, and the chat it is in."""

    chat_id: str


class StoredChat(WireModel):
    """A chat as an `InteractionStore` keeps it."""

    id: str
    interactions: list[Interaction]
    created_at: str


class ChatSummary(WireModel):
    id: str
    title: str = ""
    agent: str = ""
    status: str = ""
    created_at: str = ""
    updated_at: str = ""
    pinned: bool = False
    place: Place = "list"
    tags: tuple[str, ...] = ()


class ChatView(WireModel):
    """A chat as it stands, or its newest part if it is very long."""

    id: str
    interactions: tuple[InteractionView, ...]
    created_at: str
    title: str = ""
    agent: str = ""
    status: str = ""
    updated_at: str = ""
    pinned: bool = False
    place: Place = "list"
    tags: tuple[str, ...] = ()
    last_seq: int = 0
    last_event_id: str = ""
    """A cursor for the chat's stream: everything after what is here."""
    truncated: bool = False
    """True if older interactions are left out: ask for those with `next` as `before`."""
    next: str | None = None


class ChatPage(WireModel):
    chats: list[ChatSummary]
    next: str | None


class TagView(WireModel):
    """A tag and how many of the chats that were looked at have it."""

    tag: str
    chats: int


class TagList(WireModel):
    tags: list[TagView]


class ShareView(WireModel):
    """A read-only link to a chat: `path` at this server. It shows the branch up to this
    interaction."""

    share_id: str
    path: str
    interaction_id: str
    created_at: str


class ShareList(WireModel):
    shares: list[ShareView]


class SharedChat(WireModel):
    """A chat as a link shows it to other people."""

    title: str
    agent: str
    shared_by: str | None
    shared_at: str
    interactions: tuple[InteractionView, ...]


class PassageView(WireModel):
    """Where something was said: in the message or the answer of an interaction. `visible` is false
    for one that was edited away."""

    interaction_id: str
    speaker: Literal["user", "agent"]
    before: str
    match: str
    after: str
    visible: bool


class PassageList(WireModel):
    passages: list[PassageView]


class ApprovalPage(WireModel):
    approvals: list[ApprovalView]
    next: str | None


class GrantView(WireModel):
    """A standing approval for a tool."""

    grant_id: str
    chat_id: str
    tool: str
    scope: Literal["run", "thread"]
    granted_at: str = ""
    granted_by: str | None = None
    chat_title: str = ""


class GrantPage(WireModel):
    grants: list[GrantView]
    next: str | None


class BranchView(WireModel):
    """An interaction in the tree of a chat; `edits` names the one it was made from."""

    interaction_id: str
    parent_id: str | None = None
    edits: str | None = None
    status: InteractionStatus
    user_message: str = ""
    created_at: str = ""
    visible: bool


class BranchList(WireModel):
    """`head` is the last interaction of the branch that is shown."""

    head: str | None = None
    branches: tuple[BranchView, ...]


class ToolView(WireModel):
    """`title` is for people: its author's, or made of the name."""

    name: str
    title: str = ""
    description: str
    effect: str
    parameters: dict[str, Any]


class SkillView(WireModel):
    """Something an agent can do, and messages that make it do so."""

    name: str
    description: str = ""
    examples: list[str] = []


class AgentView(WireModel):
    """`examples` are those of all `skills`. `icon` is a character or two, `colour` is `#rrggbb`."""

    name: str
    description: str | None = None
    model: str = ""
    examples: list[str] = []
    skills: list[SkillView] = []
    tools: list[ToolView] = []
    icon: str | None = None
    colour: str | None = None


class AgentList(WireModel):
    agents: list[AgentView]


class UnavailableServer(WireModel):
    """An MCP server that could not be asked."""

    server: str
    reason: str


class PromptArgument(WireModel):
    name: str
    description: str | None = None
    required: bool = False


class PromptView(WireModel):
    """A prompt that an MCP server offers; `arguments` are filled in by the user."""

    server: str
    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] = []


class PromptList(WireModel):
    prompts: list[PromptView]
    unavailable: list[UnavailableServer] = []


class FilledPrompt(WireModel):
    """A prompt as it can be sent: `user_message` and `items` of a message."""

    user_message: str
    items: list[ItemView] = []


class ResourceView(WireModel):
    """Something to read that an MCP server offers."""

    server: str
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


class ResourceTemplateView(WireModel):
    """Addresses of further resources: the parts in braces are filled in by the user."""

    server: str
    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None


class ResourceList(WireModel):
    resources: list[ResourceView]
    templates: list[ResourceTemplateView]
    unavailable: list[UnavailableServer] = []


class ResourceItems(WireModel):
    """What a resource holds, as `items` of a message."""

    items: list[ItemView]


class McpSignIn(WireModel):
    """An MCP server at which each user signs in."""

    server: str
    signed_in: bool


class McpSignInList(WireModel):
    sign_ins: list[McpSignIn]


class SignInLink(WireModel):
    """Where to sign in, in a browser, within ten minutes."""

    url: str


class SignInView(WireModel):
    """How a caller gets what this server wants in `Authorization`: nothing, an access key, a token
    that is brought along, or an access token of an OpenID Connect issuer.

    The page signs in as `page_client_id`, programs on the user's computer as `cli_client_id`: with
    the authorization code and PKCE, or the latter with a device code. Without that id it must be
    brought along. `parameters` go with each request to the issuer. `loopback_host` is the host
    under which the issuer knows the address to which a program's sign-in returns.
    """

    method: Literal["none", "key", "token", "oidc"]
    issuer: str | None = None
    page_client_id: str | None = None
    cli_client_id: str | None = None
    scopes: list[str] = []
    parameters: dict[str, str] = {}
    loopback_host: str = "127.0.0.1"
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    end_session_endpoint: str | None = None


class MeView(WireModel):
    """The caller, as the server knows it. `id` owns what it makes."""

    id: str
    name: str | None
    tenant: str | None
    roles: list[str]


class Processed(WireModel):
    """The server's receipt for a decision. Where several people decide, `missing` is how many more
    of them have to say yes; with 0 the call is decided about."""

    status: Literal["processed"] = "processed"
    approval_id: str
    approved: bool
    missing: Annotated[int | None, SOMETIMES, Field(exclude_if=lambda value: value is None)] = None


class MessageTaken(WireModel):
    """The message is stored: the next call of the model gets it."""

    status: Literal["accepted"] = "accepted"
    interaction_id: str
    message_id: str


class Cancelling(WireModel):
    status: Literal["cancelling"] = "cancelling"
    interaction_id: str
    message: str = "Interaction will stop at next checkpoint"


class AuditEntry(WireModel):
    """One thing that was asked for, decided, begun or ended. Of contents it has digests only.

    `log` is the thread, or `server` for what happened at the server; `seq` the place in it. `who`
    is the person who did it, in the `role` by which they could; `by` is what did it where that was
    no person. `digest` is of what was allowed, of a result, or the thread's chain.
    """

    at: str
    log: str
    seq: int
    what: str
    user_id: str | None = None
    agent: str | None = None
    run_id: str | None = None
    call_id: str | None = None
    tool: str | None = None
    by: str | None = None
    who: str | None = None
    who_name: str | None = None
    role: str | None = None
    outcome: str | None = None
    subject: str | None = None
    digest: str | None = None
    details: dict[str, Any] = {}


class AuditReport(WireModel):
    """Newest first. `is_cut` says that there are more than were asked for."""

    since: str | None
    entries: list[AuditEntry]
    is_cut: bool = False


class Checkpoint(WireModel):
    """A signed statement of how far the server's log had come: its first `next_seq` - 1 events
    have the digest in `chain`. `incarnation` names the log, `key_id` the key that signed."""

    format: Literal[1] = 1
    at: str
    incarnation: str
    next_seq: int
    chain: str
    key_id: str = ""
    signature: str = ""


class FeedbackRow(WireModel):
    """What one user thinks of one answer. It has ids, and nothing that was asked or answered."""

    at: str
    rating: Rating
    note: str | None
    agent: str
    user_id: str
    chat_id: str
    interaction_id: str


class FeedbackPage(WireModel):
    feedback: list[FeedbackRow]
    next: str | None


class UsageRow(WireModel):
    """What one user's turns used of one model with one agent on one day (UTC)."""

    day: str
    user_id: str
    agent: str
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: list[CostView]


class UsageReport(WireModel):
    """Oldest first. A day without turns has no rows."""

    since: str
    rows: list[UsageRow]


class BudgetRow(WireModel):
    """What may be spent in one period (UTC), and what is left of it.

    `scope` says whose it is: of one `user` for a day or an `hour`, of one `agent` for a day, or of
    the whole server for a `day`. A budget of a user with an `agent` counts that agent alone; one
    without a `user_id` is that of each user who has spent nothing. `unit` is `tokens` or a
    currency. What calls under way have reserved counts as `spent`.
    """

    scope: Literal["user", "hour", "agent", "day"]
    user_id: str | None = None
    agent: str | None = None
    unit: str
    spent: float
    most: float
    left: float
    resets_at: str


class BudgetReport(WireModel):
    """`run` are the budgets of each single turn, as a person reads them."""

    at: str
    rows: list[BudgetRow]
    run: list[str] = []


class SessionView(WireModel):
    """One conversation, without a word of what is said in it.

    `thread_id` is what the audit calls its `log`, `session_id` what a client of Teal's API calls
    it, `surface` the API. `is_driven` says that an instance works at it now.
    """

    thread_id: str
    session_id: str
    surface: str
    user_id: str
    agent: str
    status: str
    is_driven: bool
    queued: int
    created_at: str
    updated_at: str


class UserActivity(WireModel):
    """`running`, `waiting` and `ended` count conversations, `streams` open connections."""

    user_id: str
    running: int = 0
    waiting: int = 0
    ended: int = 0
    streams: int = 0
    last_at: str | None = None


class SessionReport(WireModel):
    """All that run or wait, and those that changed since a moment: users by their id, sessions at
    work first and then the newest. `is_cut` says that there are more sessions than were asked for.
    """

    at: str
    since: str
    users: list[UserActivity]
    sessions: list[SessionView]
    is_cut: bool = False
