"""The engine's nouns: what threads, runs, messages and calls are made of.

Wire words (task, chat, interaction, request) are unknown here; each surface re-spells these.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from sk_agents.engine.values import dataclass, members_at_hand
from sk_agents.exceptions import StateCorrupt

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HEAD_VERSION = 3
MILLION = 1_000_000
# The id of the thread that holds what happened at the server itself. No API gives it out; once it
# is long it goes on in others, whose ids begin so.
SERVER_LOG = "teal-server-log"
# Further digits of an amount are rounding errors.
COST_DIGITS = 12

UtcTime = Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))]
"""A time without a zone is refused; any other zone is turned into UTC."""


class StoredModel(BaseModel):
    """A stored value. Unknown fields are ignored, so an older reader survives a newer writer."""

    # Written as null, NaN would come back as something else; as NaN, a store can refuse it.
    model_config = ConfigDict(
        frozen=True, extra="ignore", ser_json_inf_nan="constants", defer_build=True
    )


@members_at_hand
class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@members_at_hand
class ThreadStatus(StrEnum):
    """A thread's status is that of its active or last run; `idle` before the first one."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


# Made once: finding an enum's member by its value is slow.
STATUS_AFTER: Mapping[RunStatus, ThreadStatus] = {
    status: ThreadStatus(status) for status in RunStatus if status is not RunStatus.QUEUED
}


@members_at_hand
class Effect(StrEnum):
    """What a second execution of a tool would do. Undeclared means `at_most_once`."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    AT_MOST_ONCE = "at_most_once"


@members_at_hand
class CallState(StrEnum):
    PROPOSED = "proposed"
    STARTED = "started"
    UNKNOWN = "unknown"
    FINISHED = "finished"


@members_at_hand
class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    CONSUMED = "consumed"


TERMINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
# A run that does not go on by itself.
SETTLED = TERMINAL | {RunStatus.WAITING}

# Every legal change of state, one table a kind; `None` is "does not exist yet". A command that asks
# for another change is refused, and a log that contains one is damaged.
RUN_CHANGES: Mapping[RunStatus | None, Set[RunStatus]] = {
    None: {RunStatus.QUEUED, RunStatus.RUNNING},
    RunStatus.QUEUED: {RunStatus.RUNNING, RunStatus.CANCELLED},
    RunStatus.RUNNING: SETTLED,
    RunStatus.WAITING: {RunStatus.RUNNING, RunStatus.FAILED, RunStatus.CANCELLED},
    RunStatus.COMPLETED: set(),
    RunStatus.FAILED: set(),
    RunStatus.CANCELLED: set(),
}
CALL_CHANGES: Mapping[CallState | None, Set[CallState]] = {
    None: {CallState.PROPOSED},
    CallState.PROPOSED: {CallState.STARTED, CallState.FINISHED},
    CallState.STARTED: {CallState.STARTED, CallState.UNKNOWN, CallState.FINISHED},
    CallState.UNKNOWN: {CallState.STARTED, CallState.FINISHED},
    CallState.FINISHED: set(),
}
APPROVAL_CHANGES: Mapping[ApprovalState | None, Set[ApprovalState]] = {
    None: {ApprovalState.PENDING},
    ApprovalState.PENDING: {
        ApprovalState.APPROVED,
        ApprovalState.REJECTED,
        ApprovalState.EXPIRED,
        ApprovalState.WITHDRAWN,
    },
    ApprovalState.APPROVED: {ApprovalState.CONSUMED, ApprovalState.WITHDRAWN},
    ApprovalState.REJECTED: set(),
    ApprovalState.EXPIRED: set(),
    ApprovalState.WITHDRAWN: set(),
    ApprovalState.CONSUMED: set(),
}

S = TypeVar("S", bound=StrEnum)


def checked_change(table: Mapping[S | None, Set[S]], old: S | None, new: S, what: str) -> S:
    """The new state, if the table allows it.

    Raises:
        StateCorrupt: the table does not allow it.
    """
    if new not in table[old]:
        raise StateCorrupt(f"{what} cannot go from {old or 'nothing'} to {new}")
    return new


ApprovalKind = Literal["tool", "outcome_unknown", "question", "auth"]
DecidedBy = Literal["human", "policy", "timeout", "cancel", "failure"]


# Each is a row of the index: a log from elsewhere must not make any number of them.
AudienceNames = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field(max_length=100)
]


class Audience(StoredModel):
    """The people who may decide: those with one of the roles, in one of the groups, or named."""

    roles: AudienceNames = ()
    groups: AudienceNames = ()
    users: AudienceNames = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """One key for each of them, as the index lists them and as a person's memberships are."""
        return (
            *(audience_key("role", name) for name in self.roles),
            *(audience_key("group", name) for name in self.groups),
            *(audience_key("user", name) for name in self.users),
        )


def audience_key(kind: Literal["role", "group", "user"], name: str) -> str:
    return f"{kind}:{name}"


OnExpiry = Literal["deny", "hold", "escalate"]


class Review(StoredModel):
    """What a rule demands of the people who decide about a call.

    An empty audience is the requester, who then decides alone. `lifetime` is in seconds;
    `escalate_to` is the group that decides once it is over. With `reason_required` nobody decides
    without saying why.
    """

    audience: Audience = Audience()
    quorum: int = 1
    not_requester: bool = False
    lifetime: float | None = None
    on_expiry: OnExpiry = "deny"
    escalate_to: str | None = None
    share_conversation: bool = False
    reason_required: bool = False

    @property
    def asks_others(self) -> bool:
        return bool(self.audience.keys) or self.escalate_to is not None

    @property
    def demands(self) -> dict[str, Any] | None:
        """What decides who may allow the call and how: a part of its digest. `None`: a bare word
        of the requester is enough."""
        # Only where there is one: the digests of all other approvals stay what they were.
        reason = {"reason_required": True} if self.reason_required else {}
        if not self.asks_others:
            return reason or None
        return {
            "audience": sorted(self.audience.keys),
            "quorum": self.quorum,
            "not_requester": self.not_requester,
            "escalate_to": self.escalate_to,
            **reason,
        }


def demands_of(review: Review | None) -> dict[str, Any] | None:
    return review.demands if review is not None else None


class Durability(StrEnum):
    """What a store keeps: nothing, a killed process, a lost machine, a lost site."""

    D0 = "D0"
    D1 = "D1"
    D2 = "D2"
    D3 = "D3"


# What every model that sees can look at.
PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
DATA = "data:"
# Instead of a content that an earlier event of the thread holds; its digest follows.
BLOB = "blob:sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """What a tool returned beside its text, or a user sent: a picture, a sound, a file, or a link.

    `uri` is a data URI in base64 that holds all of it, in a log perhaps a reference (see
    `log.blobs`); of a link it is an address, which nothing here ever fetches. `size` counts its
    bytes, 0 of a link.
    """

    # It becomes a header; an imported log may say anything.
    media_type: Annotated[str, Field(pattern=r"^[!-~]{1,200}$")]
    uri: str
    size: int = 0
    name: str | None = None
    digest: str | None = field(default=None, compare=False)

    @property
    def is_link(self) -> bool:
        return not self.uri.startswith((DATA, BLOB))

    @property
    def is_picture(self) -> bool:
        return self.media_type in PICTURES and self.uri.startswith(DATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a message: text, an image as a data URI, or a named file as text.

    A file that is no text, a PDF, has its text as content, and beside it the `original` for models
    that read it themselves, with the number of its `pages`. In a log the content may be a
    reference; see `log.blobs`. `digest` is that of a content to which later events may refer.
    """

    kind: Literal["text", "image", "file"] = "text"
    content: str
    name: str | None = None
    digest: str | None = field(default=None, compare=False)
    original: Attachment | None = None
    pages: int | None = None

    @property
    def text(self) -> str:
        """As a model reads it: a file begins with its name."""
        return (
            f"File {self.name or 'file'}:\n{self.content}" if self.kind == "file" else self.content
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInput:
    """What a person sent to start a run, with the context their client gave along."""

    parts: tuple[Part, ...]
    context: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(part.content for part in self.parts if part.kind == "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money, in a currency of ISO 4217."""

    amount: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """`cost` is there if the model had a price when it was asked; it stays what it was then."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: Cost | None = None

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost=None if self.cost is other.cost is None else _sum(self, other),
        )


def _sum(one: Usage, other: Usage) -> Cost | None:
    """Known only if the cost of every token is, in one currency."""
    if one.total_tokens == 0 and one.cost is None:
        return other.cost
    costs = [usage.cost for usage in (one, other) if usage.total_tokens or usage.cost]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs) or len({cost.currency for cost in known}) > 1:
        return None
    amount = round(sum(cost.amount for cost in known), COST_DIGITS)
    return Cost(amount=amount, currency=known[0].currency)


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens cost."""

    prompt: float
    completion: float
    currency: str

    def applied(self, usage: Usage) -> Usage:
        """The usage with its cost; as it is if the model did not count."""
        if not usage.total_tokens:
            return usage
        amount = self.prompt * usage.prompt_tokens + self.completion * usage.completion_tokens
        cost = Cost(amount=round(amount / MILLION, COST_DIGITS), currency=self.currency)
        return Usage(
            prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens, cost=cost
        )


class ToolCall(StoredModel):
    """A call the model asks for. `name` is `<plugin>-<function>`, as the model sees it."""

    id: str
    plugin_name: str
    function_name: str
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        return (
            f"{self.plugin_name}-{self.function_name}" if self.plugin_name else self.function_name
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a prompt, in the vocabulary every chat model shares."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning_state: Mapping[str, Any] | None = None
    # About how many tokens it has; 0 until they were counted.
    tokens: int = field(default=0, init=False, compare=False, repr=False)

    def keep_tokens(self, tokens: int) -> int:
        object.__setattr__(self, "tokens", tokens)
        return tokens


@dataclass(frozen=True, slots=True)
class NewThread:
    """What is fixed when a thread is made and what its first commit creates it with."""

    user_id: str
    session_id: str = ""
    wire_id: str = ""
    surface: str = ""
    agent: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | None = None


class Thread(NamedTuple):
    """The head row: everything a decision needs without reading the log.

    `runnable` says that an owner has work to do; together with `owner` it is all that recovery
    looks at. `epoch` grows at each claim, so that a stale owner is not taken for the present one.
    `recoveries` counts the claims of a lost owner's work since a run last moved on by itself.
    `incarnation` is the id of the commit that made the thread: a deleted thread with the same id
    had another one. Threads made before version 2 of this row have an empty one. `chain` is the
    digest of the whole log (`log.chain`), empty where the store keeps none.
    """

    thread_id: str
    user_id: str
    session_id: str
    wire_id: str
    surface: str
    agent: str
    status: ThreadStatus
    runnable: bool
    epoch: int
    owner: str | None
    next_seq: int
    active_run: str | None
    head_run: str | None
    queued: int
    recoveries: int
    metadata: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    incarnation: str = ""
    chain: str = ""
    version: int = HEAD_VERSION


EntryKind = Literal["run", "approval", "grant", "review", "rating"]
Rating = Literal["up", "down"]
# Whose entries all ratings are: those who run the server read them, whoever gave them.
ALL_RATINGS = "ratings:all"


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the index across threads: where a run, an approval, a grant or a rating lies.

    `open` is what an inbox lists, so never a run; `due_at` is when a sweeper must look at it.
    A `review` is an approval in the inbox of others: its `user_id` is a key of their audience, its
    `key` is made by `review_key`. The `user_id` of a rating is `ALL_RATINGS`, its `key` the run.
    """

    kind: EntryKind
    key: str
    thread_id: str
    user_id: str
    run_id: str
    open: bool = True
    due_at: datetime | None = None


def server_log_part(number: int) -> str:
    """The thread that holds this part of the server's log; the first one has number 1."""
    return SERVER_LOG if number == 1 else f"{SERVER_LOG}-{number}"


def review_key(approval_id: str, audience_key: str) -> str:
    """Sorts as the approvals do; `approval_of` is the way back."""
    return f"{approval_id}@{audience_key}"


def approval_of(review_key: str) -> str:
    return review_key.partition("@")[0]
