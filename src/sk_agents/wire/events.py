"""The events of a stream, and what they share with the answers of `views.py`.

Reading is forgiving: unknown fields are ignored, and a field that an older server does not send has
a default. What the server sends is exact: every field but those marked `Sometimes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    computed_field,
)
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema, WithJsonSchema
from pydantic_core import CoreSchema

T = TypeVar("T")
SOMETIMES = "sometimes"
IN_CHAT = "in a chat"

Sometimes = Annotated[T | None, SOMETIMES]
"""Left out when there is nothing to say."""
_ABSENT = Field(exclude_if=lambda value: value is None or value == "")
InChat = Annotated[T | None, SkipJsonSchema(), _ABSENT, IN_CHAT]
"""Sent on a chat's own stream only."""
SometimesInChat = Annotated[T | None, SkipJsonSchema(), _ABSENT, IN_CHAT, SOMETIMES]
"""Sent there when there is something to say."""


class WireModel(BaseModel):
    # Checks are built when a model is first used: a server starts without them.
    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A default is for reading only: what the server sends has the field."""
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        if handler.mode == "serialization" and "properties" in schema:
            optional = {
                field.alias or name
                for name, field in cls.model_fields.items()
                if SOMETIMES in field.metadata
            }
            schema["required"] = [name for name in schema["properties"] if name not in optional]
            for name in schema["required"]:
                schema["properties"][name].pop("default", None)
        return reference


class EventType(StrEnum):
    TOOL_CALL = "TOOL_CALL"
    TOOL_RESULT = "TOOL_RESULT"
    THINKING = "THINKING"
    ANSWER = "ANSWER"


class InteractionStatus(StrEnum):
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    WAITING_APPROVAL = "WAITING_APPROVAL"


Decider = Literal["human", "policy", "timeout", "cancel", "failure"]
ApprovalKind = Literal["tool", "outcome_unknown", "question", "auth"]
# Where a chat is listed.
Place = Literal["list", "archive", "bin"]
Choice = Literal["done", "retry", "give_up"]
Rating = Literal["up", "down"]


class UsageView(WireModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class CostView(WireModel):
    """By the price that the agent's file gave when the model was asked."""

    amount: float
    currency: str


class AudienceView(WireModel):
    """Who may decide: people with one of the roles, in one of the groups, or named."""

    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class VoteView(WireModel):
    """What one person said. `right` is the role, group or name by which they may."""

    voter: str
    voter_name: str | None = None
    right: str = ""
    approved: bool
    at: str = ""
    message: Sometimes[str] = None


class ReviewView(WireModel):
    """How others than the requester decide: `missing` more of them have to say yes, one no
    rejects. At its end it is denied, held, or escalated to the group `escalate_to`."""

    audience: AudienceView
    quorum: int = 1
    not_requester: bool = False
    on_expiry: Literal["deny", "hold", "escalate"] = "deny"
    escalate_to: Sometimes[str] = None
    share_conversation: bool = False
    votes: tuple[VoteView, ...] = ()
    missing: int = 1


class TableView(WireModel):
    """What a call would do, in rows; `more` of them are not shown."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0


class AskedCall(WireModel):
    """What a person must see to decide: `tool_input` is exactly what will run, and `digest` stands
    for all of it. `preview` is what the call would have changed when it was asked about, as a
    unified diff or another text; the tool may show it as a table or a picture (a data URI)
    instead. With `redacted` secrets were taken out of both; `digest` is of what will run. With
    a `review`, others than the requester decide. `budget` says how much of a budget is spent, if
    that is why it is asked. With `reason_required` a decision needs a `message`. `sign_in` is the
    MCP server that the user must sign in to first; it goes on by itself once that is done."""

    approval_id: str
    interaction_id: str = ""
    kind: ApprovalKind = "tool"
    call_id: str
    tool_name: str
    tool_input: str = ""
    digest: str = ""
    expires_at: str | None = None
    choices: Sometimes[tuple[str, ...]] = None
    answer_schema: Sometimes[dict[str, Any]] = Field(None, alias="schema")
    preview: Sometimes[str] = None
    preview_table: Sometimes[TableView] = None
    preview_picture: Sometimes[str] = None
    redacted: Sometimes[bool] = None
    review: Sometimes[ReviewView] = None
    budget: Sometimes[str] = None
    reason_required: Sometimes[bool] = None
    sign_in: Sometimes[str] = None


class StreamEvent(WireModel):
    """An event with a `seq` is stored and final. One without is a preview: text as it appears,
    which the stored event that follows confirms, completes or corrects.

    `seq`, the event's place in the chat's log, and `event_id`, what a stream can go on from, travel
    as the frame's id.
    """

    seq: Annotated[int | None, SkipJsonSchema(), _ABSENT] = None
    event_id: Annotated[str | None, SkipJsonSchema(), _ABSENT] = None
    at: InChat[str] = None
    interaction_id: str = ""


class InteractionStarted(StreamEvent):
    chat_id: str = ""
    status: InteractionStatus = InteractionStatus.RUNNING
    created_at: str = ""
    user_message: InChat[str] = None
    agent: InChat[str] = None
    parent_id: InChat[str] = None
    edits: InChat[str] = None


class InteractionQueued(StreamEvent):
    """The chat is busy: the interaction starts when its turn comes."""

    position: int = Field(1, ge=1)
    user_message: InChat[str] = None
    agent: InChat[str] = None


class _Unaddressed(StreamEvent):
    """Its interaction is named on a chat's own stream only."""

    interaction_id: Annotated[str, SkipJsonSchema(), _ABSENT, IN_CHAT] = ""


class ThinkingEvent(_Unaddressed):
    """What the model reasoned; with `spoken`, what it said to the user before it called tools."""

    type: Literal[EventType.THINKING] = EventType.THINKING
    content: str
    spoken: Annotated[bool, SOMETIMES, Field(exclude_if=lambda spoken: not spoken)] = False


class _Spending(StreamEvent):
    """With what was used up to this step: by the round of the model that ends with it, or, in a
    result, by the tool itself. `cost` is there if it is known."""

    usage: SometimesInChat[UsageView] = None
    cost: SometimesInChat[CostView] = None


class ToolCallEvent(_Unaddressed, _Spending):
    """A tool is called; `tool_input` is JSON. `grant_id` names the standing approval that allowed
    it, if one did."""

    type: Literal[EventType.TOOL_CALL] = EventType.TOOL_CALL
    id: str
    tool_name: str
    tool_input: str
    grant_id: Annotated[str | None, SOMETIMES, Field(exclude_if=lambda grant: grant is None)] = None


class AttachmentView(WireModel):
    """What a tool returned beside its text. It is read at
    `/chats/{chat_id}/interactions/{interaction_id}/attachments/{call_id}/{number}`, where `number`
    is its place among those of its result, from 0. A `link` leads elsewhere instead, and is not
    fetched by the server."""

    media_type: str
    size: int = 0
    name: str | None = None
    link: Annotated[str | None, SOMETIMES, Field(exclude_if=lambda link: link is None)] = None


class ToolResultEvent(_Unaddressed, _Spending):
    type: Literal[EventType.TOOL_RESULT] = EventType.TOOL_RESULT
    id: str
    tool_name: str
    tool_output: str
    attachments: Annotated[
        tuple[AttachmentView, ...] | None, SOMETIMES, Field(exclude_if=lambda some: not some)
    ] = None


CutReason = Literal["length", "content_filter"]


class AnswerEvent(_Unaddressed, _Spending):
    """The whole answer; it replaces all previews. `finish_reason` says why it is not complete: the
    bound on tokens was reached, or a content filter stopped it."""

    type: Literal[EventType.ANSWER] = EventType.ANSWER
    content: str
    finish_reason: Annotated[
        CutReason | None, SOMETIMES, Field(exclude_if=lambda reason: reason is None)
    ] = None


def cut_reason(finish_reason: str) -> CutReason | None:
    """`None` for an answer that came to its own end."""
    match finish_reason:
        case "length" | "content_filter":
            return finish_reason
        case _:
            return None


# What an interaction consists of. The fixed `type` alone tells a thought from an answer.
AgentEvent = Annotated[
    ToolCallEvent | ToolResultEvent | ThinkingEvent | AnswerEvent, Field(discriminator="type")
]


class ApprovalRequired(AskedCall, _Spending):
    """A person must decide about a call."""


class DecisionMade(StreamEvent):
    """`approval_id` is null for a call that policy refused: no person was asked."""

    approval_id: str | None = None
    call_id: str
    tool_name: str = ""
    by: Decider
    decided_by: str | None = None
    decided_by_name: Sometimes[str] = None
    message: Sometimes[str] = None
    edited_arguments: Sometimes[dict[str, Any]] = None
    choice: Sometimes[Choice] = None
    answer: Annotated[Any, SOMETIMES] = None


class Approved(DecisionMade):
    pass


class Rejected(DecisionMade, _Spending):
    pass


class _Voting(StreamEvent):
    """`missing` is how many more people have to say yes after it."""

    approval_id: str
    call_id: str
    tool_name: str = ""
    missing: int = 1


class VoteEvent(_Voting):
    """One of those who decide said yes or no; it replaces what they said before."""

    voter: str
    voter_name: str | None = None
    approved: bool
    message: Sometimes[str] = None


class VoteWithdrawal(_Voting):
    """A yes was taken back."""

    voter: str
    voter_name: str | None = None


class ReviewExtension(_Voting):
    """The time of an approval was over, and it goes on: with another audience, or without a
    limit."""

    audience: AudienceView
    expires_at: str | None = None


class SteeredEvent(StreamEvent):
    """The user said something while the agent worked; the model's next call gets it."""

    message_id: str
    content: str


class SteeringDelivery(StreamEvent):
    """The model's call that begins now gets these messages. What was said and has no such event
    when the interaction ends was not delivered."""

    message_ids: tuple[str, ...]


class InteractionStopping(StreamEvent):
    """It was asked to stop after the step that is at work: nothing new begins."""


class InteractionCancelled(StreamEvent):
    pass


class InteractionError(StreamEvent):
    """The interaction cannot go on; `code` is stable, `message` is for people."""

    code: str
    message: str = ""
    correlation_id: str | None = None


class InteractionComplete(StreamEvent):
    """The last event of every interaction, however it ended."""

    status: InteractionStatus
    usage: UsageView = Field(default_factory=UsageView)
    cost: Sometimes[CostView] = None


class TextPreview(StreamEvent):
    """Text as it appears, from character `offset` of its round on; void once a higher `attempt` of
    the round begins."""

    round: int
    attempt: int = 1
    offset: int
    content: str


class AnswerDelta(TextPreview):
    """What the agent says."""


class ThinkingDelta(TextPreview):
    """What the agent thinks."""


class ToolOutput(StreamEvent):
    """What a tool prints while it runs, from character `offset` on; again from 0 with each
    `tool_call`."""

    call_id: str
    offset: Annotated[int | None, WithJsonSchema({"type": "integer"})] = None
    chunk: str


class BranchSwitched(StreamEvent):
    """Another interaction is the last one of the branch that is shown."""

    interaction_id: Annotated[
        str,
        BeforeValidator(lambda value: value or ""),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ] = ""


class ChatChanged(_Unaddressed):
    """The chat was renamed."""

    title: str | None = None


class FeedbackGiven(StreamEvent):
    """What the user thinks of an answer now; without a `rating` they took it back."""

    rating: Rating | None = None
    note: Sometimes[str] = None


class StreamEnd(WireModel):
    """The stream ends early; the interaction does not. Go on at `resume_url`."""

    reason: str
    resume_url: str


class Unknown(StreamEvent):
    """An event of a newer server, as it came."""

    name: str
    data: str


Event = (
    InteractionStarted
    | InteractionQueued
    | AnswerDelta
    | ThinkingDelta
    | ToolOutput
    | ThinkingEvent
    | AnswerEvent
    | ToolCallEvent
    | ToolResultEvent
    | ApprovalRequired
    | VoteEvent
    | VoteWithdrawal
    | ReviewExtension
    | Approved
    | Rejected
    | SteeredEvent
    | SteeringDelivery
    | InteractionStopping
    | InteractionCancelled
    | InteractionError
    | InteractionComplete
    | BranchSwitched
    | ChatChanged
    | FeedbackGiven
    | Unknown
)

EVENTS: Mapping[str, type[Event]] = {
    "interaction_started": InteractionStarted,
    "interaction_queued": InteractionQueued,
    "thinking": ThinkingEvent,
    "tool_call": ToolCallEvent,
    "tool_result": ToolResultEvent,
    "answer": AnswerEvent,
    "approval_required": ApprovalRequired,
    "vote_cast": VoteEvent,
    "vote_withdrawn": VoteWithdrawal,
    "review_extended": ReviewExtension,
    "approved": Approved,
    "rejected": Rejected,
    "steered": SteeredEvent,
    "steering_delivered": SteeringDelivery,
    "stopping": InteractionStopping,
    "cancelled": InteractionCancelled,
    "error": InteractionError,
    "interaction_complete": InteractionComplete,
    "answer_delta": AnswerDelta,
    "thinking_delta": ThinkingDelta,
    "tool_output": ToolOutput,
    "branch_changed": BranchSwitched,
    "chat_changed": ChatChanged,
    "feedback_given": FeedbackGiven,
}
