"""The closed union of everything that can happen to a thread.

An event is a fact, numbered and dated by its commit; before, `seq` is 0. Order is never time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter

from sk_agents.engine.models import (
    EPOCH,
    ApprovalKind,
    Attachment,
    Audience,
    DecidedBy,
    Effect,
    Part,
    Rating,
    Review,
    RunStatus,
    StoredModel,
    ThreadStatus,
    Usage,
    UserInput,
    UtcTime,
)


class LogEvent(StoredModel):
    seq: int = 0
    at: UtcTime = EPOCH
    run_id: str = ""


class ThreadEvent(LogEvent):
    """What happens to a thread; every other event is a step of one of its runs."""


class Beginning(ThreadEvent):
    """What a run is started with, beside its message."""

    idempotency_key: str | None = None
    request_digest: str | None = None
    agent: str | None = None
    on_disconnect: Literal["cancel", "continue"] | None = None
    response_schema: dict[str, Any] | None = None
    trace: str | None = None  # the W3C traceparent of what asked for it
    user_name: str | None = None  # what the person who asked is called
    secrets: dict[str, str] | None = Field(None, repr=False)  # what placeholders in it stand for
    correlation_id: str | None = None  # finds the request that asked for it in the logs


class RunQueued(Beginning):
    """A message was accepted while the thread was busy; it starts when its turn comes."""

    type: Literal["run_queued"] = "run_queued"
    message: UserInput
    position: int = 1  # among those that waited then


class RunStarted(Beginning):
    """A run began. `message` is absent when `RunQueued` already holds it."""

    type: Literal["run_started"] = "run_started"
    message: UserInput | None = None
    parent_run: str | None = None
    edits: str | None = None


class ModelRestarted(LogEvent):
    """The model is asked again for this round; what it had streamed before is void."""

    type: Literal["model_restarted"] = "model_restarted"
    round: int
    attempt: int
    reason: str = ""


class Thinking(LogEvent):
    """What the model reasoned, or wrote beside its tool calls."""

    type: Literal["thinking"] = "thinking"
    round: int
    content: str
    spoken: bool = False  # addressed to the user beside tool calls: it stays in the prompt


class ToolProposed(LogEvent):
    """The model asks for a call. `problem` says why it cannot run, if it cannot; `budget` why a
    person is asked before it does, whatever the rules say: a budget is nearly used up."""

    type: Literal["tool_proposed"] = "tool_proposed"
    round: int
    call_id: str
    plugin_name: str
    function_name: str
    arguments: dict[str, Any]
    effect: Effect = Effect.AT_MOST_ONCE
    definition_digest: str = ""
    gated: bool = True
    problem: str | None = None
    budget: str | None = None
    usage: Usage | None = None
    # With the first call of a round: what its model wants back with the results.
    reasoning_state: dict[str, Any] | None = None


class ApprovalRequested(LogEvent):
    """A human must decide before the call goes on. `shown` is exactly what will run. If secrets
    were taken out of it, it has `redacted`, and `digest` is of what will run all the same.

    `review` is what the rule demanded when it was asked; without one the requester decides.
    """

    type: Literal["approval_requested"] = "approval_requested"
    approval_id: str
    call_id: str
    kind: ApprovalKind = "tool"
    digest: str
    shown: dict[str, Any]
    choices: tuple[str, ...] | None = None
    answer_schema: dict[str, Any] | None = None
    expires_at: UtcTime | None = None
    asked_uptime: float | None = None  # by the host's clock that cannot be set
    review: Review | None = None


class VoteCast(LogEvent):
    """One of those who may decide said yes or no; it replaces what this voter said before.

    `right` is the key of the audience by which they may. A no decides; a yes decides together with
    as many others as the review asks for. The deciding vote shares its commit with the decision.
    """

    type: Literal["vote_cast"] = "vote_cast"
    approval_id: str
    call_id: str
    voter: str
    voter_name: str | None = None
    right: str
    approved: bool
    digest: str
    message: str | None = None
    idempotency_key: str | None = None


class VoteWithdrawn(LogEvent):
    """A voter took a yes back before enough others had said yes."""

    type: Literal["vote_withdrawn"] = "vote_withdrawn"
    approval_id: str
    call_id: str
    voter: str
    voter_name: str | None = None


class ReviewExtended(LogEvent):
    """The time of a review was over and it goes on: held without a limit, or with another audience.

    `left` are those in whose inbox it is no more.
    """

    type: Literal["review_extended"] = "review_extended"
    approval_id: str
    call_id: str
    audience: Audience
    left: Audience = Audience()
    expires_at: UtcTime | None = None
    asked_uptime: float | None = None


class ApprovalDecided(LogEvent):
    """An approval left `pending`, or an approved one was withdrawn before it was used."""

    type: Literal["approval_decided"] = "approval_decided"
    approval_id: str
    call_id: str
    outcome: Literal["approved", "rejected", "expired", "withdrawn"]
    by: DecidedBy
    decided_by: str | None = None
    decided_by_name: str | None = None
    audience: Audience | None = None  # those in whose inbox it was
    message: str | None = None
    edited_arguments: dict[str, Any] | None = None
    digest: str | None = None
    choice: Literal["done", "retry", "give_up"] | None = None
    answer: Any = None
    idempotency_key: str | None = None


class ToolStarted(LogEvent):
    """Intent: the call is about to run. Without a result after it the outcome is unknown."""

    type: Literal["tool_started"] = "tool_started"
    call_id: str
    attempt: int = 1
    digest: str = ""
    idempotency_key: str = ""
    approval_id: str | None = None
    grant_id: str | None = None


class ToolFinished(LogEvent):
    """The call has its result: its own, an error's, or a sealed one for a call that never ran."""

    type: Literal["tool_finished"] = "tool_finished"
    call_id: str
    outcome: Literal["ok", "error", "refused", "sealed"] = "ok"
    by: DecidedBy | None = None
    result: str
    digest: str | None = None  # of a long `result`, which may be a reference by it
    full_size: int | None = None  # bytes of the whole output, when `result` is only a part of it
    usage: Usage | None = None
    extra_data: dict[str, Any] | None = None
    attachments: tuple[Attachment, ...] | None = None  # absent: there are none
    secrets: dict[str, str] | None = Field(None, repr=False)  # what placeholders in it stand for


class ToolOutcomeUnknown(LogEvent):
    """The call started and was lost, with its owner or by itself: it may or may not have run."""

    type: Literal["tool_outcome_unknown"] = "tool_outcome_unknown"
    call_id: str
    reason: str


class LateResult(LogEvent):
    """A lost owner's result of a call whose outcome was unknown; shown to the human who decides."""

    type: Literal["late_result"] = "late_result"
    call_id: str
    result: str
    digest: str | None = None
    attachments: tuple[Attachment, ...] | None = None
    secrets: dict[str, str] | None = Field(None, repr=False)


class Steered(LogEvent):
    """The user said something while the run worked: the next call of the model gets it.

    A run that ends before there is one has not delivered it.
    """

    type: Literal["steered"] = "steered"
    message_id: str
    content: str
    said_by: str | None = None
    idempotency_key: str | None = None
    request_digest: str | None = None
    secrets: dict[str, str] | None = Field(None, repr=False)  # what placeholders in it stand for


class SteeringDelivered(LogEvent):
    """The model's next call, of this round, gets these messages, after all that came before it.

    `usage` is of the call before, if that one answered and its answer is not the last word any
    more: it is a thought that was spoken, in the same commit.
    """

    type: Literal["steering_delivered"] = "steering_delivered"
    round: int
    message_ids: tuple[str, ...]
    usage: Usage | None = None


class CancelRequested(LogEvent):
    """This run is to stop. No new tool starts after it. With `after="step"`, what is at work, a
    call of the model or tools, comes to its end first."""

    type: Literal["cancel_requested"] = "cancel_requested"
    requested_by: str | None = None
    reason: Literal["user", "disconnect", "interrupt", "reject", "drain"] = "user"
    after: Literal["step"] | None = None


class Cancelled(LogEvent):
    """The run stopped because it was asked to. `partial` is its text so far."""

    type: Literal["cancelled"] = "cancelled"
    partial: str | None = None


class Failed(LogEvent):
    """The run cannot go on."""

    type: Literal["failed"] = "failed"
    code: str
    message: str
    correlation_id: str | None = None


class Answered(LogEvent):
    """The whole final text of the run; authoritative over every delta streamed before."""

    type: Literal["answered"] = "answered"
    round: int = 1
    content: str
    finish_reason: str = "stop"
    usage: Usage | None = None


class Compacted(ThreadEvent):
    """From here on prompts start with `summary` instead of the runs up to `through_run`."""

    type: Literal["compacted"] = "compacted"
    through_run: str
    summary: str


class GrantChanged(ThreadEvent):
    """A standing approval for a tool was given or taken back."""

    type: Literal["grant_changed"] = "grant_changed"
    grant_id: str
    tool: str
    scope: Literal["run", "thread"]
    granted: bool
    changed_by: str | None = None
    # Of the tool it was given for; absent in logs of earlier versions.
    definition_digest: str | None = None


class BranchChanged(ThreadEvent):
    """Another run became the tip of the visible branch; `None` is the empty root."""

    type: Literal["branch_changed"] = "branch_changed"
    head_run: str | None = None


class ImportedItem(StoredModel):
    role: Literal["user", "assistant"]
    content_type: Literal["text", "image"] = "text"
    content: str
    run_id: str
    at: UtcTime


class Imported(ThreadEvent):
    """History written from outside, by a client of the four-method task interface."""

    type: Literal["imported"] = "imported"
    items: tuple[ImportedItem, ...] = ()
    status: ThreadStatus | None = None


class ThreadChanged(ThreadEvent):
    """The thread's own labels changed: its title and free metadata. `None` removes a key."""

    type: Literal["thread_changed"] = "thread_changed"
    metadata: dict[str, Any]


class Rated(ThreadEvent):
    """What the person who asked thinks of an answer; it replaces what they said before. Without a
    `rating` they took it back."""

    type: Literal["rated"] = "rated"
    rating: Rating | None = None
    note: str | None = None


class RunEnded(ThreadEvent):
    """The one terminal event of a run; shares its commit with what ended it."""

    type: Literal["run_ended"] = "run_ended"
    # Written as the text that it is: pydantic compares the members of such a type one by one.
    status: Annotated[
        Literal[RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED],
        PlainSerializer(str, return_type=str, when_used="json"),
    ]
    usage: Usage = Usage()


# What a `Noted` says of a thread that is about to be deleted: that it is, and what its calls did.
DELETING = "deleting"
KEPT_CALL = "call"


class Noted(ThreadEvent):
    """What happened at the server and belongs to no other thread: in the server's own log alone.

    `who` did it; it is about `subject`, a thread, a key, an address; `count` times in all.
    """

    type: Literal["noted"] = "noted"
    what: str
    who: str | None = None
    who_name: str | None = None
    role: str | None = None
    subject: str | None = None
    user_id: str | None = None
    agent: str | None = None
    outcome: str | None = None
    digest: str | None = None
    count: int = 1
    details: dict[str, Any] = {}


class Unrecognised(ThreadEvent):
    """An event of a newer version: kept in the log, skipped by this reader."""

    type: str


KnownEvent = (
    RunQueued
    | RunStarted
    | ModelRestarted
    | Thinking
    | ToolProposed
    | ApprovalRequested
    | VoteCast
    | VoteWithdrawn
    | ReviewExtended
    | ApprovalDecided
    | ToolStarted
    | ToolFinished
    | ToolOutcomeUnknown
    | LateResult
    | Steered
    | SteeringDelivered
    | CancelRequested
    | Cancelled
    | Failed
    | Answered
    | Compacted
    | GrantChanged
    | BranchChanged
    | Imported
    | ThreadChanged
    | Rated
    | RunEnded
    | Noted
)
Event = KnownEvent | Unrecognised

# Built when a log is first read, to save time at the start.
_KNOWN: TypeAdapter[KnownEvent] = TypeAdapter(
    Annotated[KnownEvent, Field(discriminator="type")], config=ConfigDict(defer_build=True)
)
EVENT_TYPES = frozenset(kind.model_fields["type"].default for kind in KnownEvent.__args__)


def numbered(event: Event, seq: int, now: datetime) -> Event:
    """A copy with its number, dated unless it happened elsewhere and brings its date along."""
    fields = event.__dict__.copy()
    fields["seq"] = seq
    if fields["at"] == EPOCH:
        fields["at"] = now
    return _with_fields(type(event), fields)


def event_from(document: dict[str, Any]) -> Event:
    """The event a stored document describes.

    Raises:
        ValidationError: a known type with a field that does not fit, or a type that is no text.
    """
    kind = document.get("type")
    if isinstance(kind, str) and kind in EVENT_TYPES:
        event = _KNOWN.validate_python(document)
        return _with_fields(type(event), event.__dict__)
    return Unrecognised.model_validate(document)


def _with_fields(kind: type[Event], fields: dict[str, Any]) -> Event:
    """An event that shares its set of field names with all events of its kind.

    Most of a process's memory holds events of old turns. With a set of its own an event that was
    read takes 1,150 bytes instead of 410. `model_construct` would make the same event in 5 us
    instead of 1, six times a turn; `test_copy_of_an_event_is_what_pydantic_would_make` compares.
    """
    event = _new(kind)
    _set_dict(event, fields)
    _set_fields(event, _fields_of(kind))
    _set_extra(event, None)
    _set_private(event, None)
    return event


# Past what pydantic does at each, which is for values that may be wrong or change.
_new = object.__new__
_set_dict = vars(BaseModel)["__dict__"].__set__
_set_fields, _set_extra, _set_private = (
    vars(BaseModel)[f"__pydantic_{slot}__"].__set__ for slot in ("fields_set", "extra", "private")
)


@cache
def _fields_of(kind: type[LogEvent]) -> set[str]:
    return set(kind.model_fields)


# What an event takes beside its text, measured.
EVENT_BYTES = 600


def size_of(event: Event) -> int:
    """How much memory it takes beyond that: its text, twice for safety."""
    measure = _SIZES.get(type(event))
    return measure(event) if measure is not None else 0


def within(events: Sequence[Event], max_bytes: int) -> Sequence[Event]:
    """The first of them, as many as `max_bytes` hold; one at least."""
    size = 0
    for number, event in enumerate(events):
        size += EVENT_BYTES + size_of(event)
        if size > max_bytes and number:
            return events[:number]
    return events


def _message_size(event: RunStarted | RunQueued) -> int:
    return sum(map(_part_size, event.message.parts)) if event.message else 0


def _part_size(part: Part) -> int:
    return 2 * len(part.content) + (len(part.original.uri) if part.original is not None else 0)


def _attachment_size(event: ToolFinished) -> int:
    return sum(len(attachment.uri) for attachment in event.attachments or ())


_SIZES: Mapping[type[Event], Callable[[Any], int]] = {
    Answered: lambda event: 2 * len(event.content),
    Thinking: lambda event: 2 * len(event.content),
    ToolFinished: lambda event: 2 * len(event.result) + _attachment_size(event),
    ToolProposed: lambda event: EVENT_BYTES + 2 * len(repr(event.arguments)),
    ApprovalRequested: lambda event: EVENT_BYTES + 2 * len(repr(event.shown)),
    RunStarted: _message_size,
    RunQueued: _message_size,
    Steered: lambda event: 2 * len(event.content),
}
