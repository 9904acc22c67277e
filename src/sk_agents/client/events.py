"""What a server tells about an interaction, as typed values.

An event with a `seq` is stored and final. One without is a preview: text as it appears, which the
stored event that follows confirms, completes or corrects. Fields that a newer server adds are
ignored, its new events come as `Unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sk_agents.client.errors import ProtocolError
from sk_agents.client.sse_parser import Frame

Status = Literal["RUNNING", "COMPLETED", "FAILED", "CANCELLED", "WAITING_APPROVAL"]
Decider = Literal["human", "policy", "timeout", "cancel", "failure"]
ApprovalKind = Literal["tool", "outcome_unknown", "question", "auth"]


class Received(BaseModel):
    """A value that came over the wire. Its checks are built when it is first used."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Cost(Received):
    """Money, if the agent's file says what its model costs."""

    amount: float
    currency: str


class Usage(Received):
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class EventBase(Received):
    seq: int | None = None
    """Its place in the chat's log; `None` for a preview."""
    event_id: str | None = None
    """What a stream can go on from; `None` for a preview."""
    interaction_id: str = ""


class Started(EventBase):
    chat_id: str = ""
    status: Status = "RUNNING"
    created_at: str = ""


class Queued(EventBase):
    """The chat is busy: the interaction starts when its turn comes."""

    position: int = 1


class Delta(EventBase):
    """A piece of text, beginning at character `offset` of its round.

    A higher `attempt` of the same round begins the text anew. `Answering` puts pieces together.
    """

    round: int
    attempt: int = 1
    offset: int
    content: str


class AnswerDelta(Delta):
    """What the agent says."""


class ThinkingDelta(Delta):
    """What the agent thinks."""


class ToolOutput(EventBase):
    """What a tool prints while it runs, beginning at character `offset`.

    A tool that is called again prints anew. A server that tells no offset sends, after a
    reconnection, everything again.
    """

    call_id: str
    offset: int | None = None
    chunk: str


class Thinking(EventBase):
    type: Literal["THINKING"] = "THINKING"
    content: str


class Answer(EventBase):
    """The whole answer; it replaces all previews."""

    type: Literal["ANSWER"] = "ANSWER"
    content: str


class ToolCall(EventBase):
    """A tool is called; `tool_input` is JSON."""

    type: Literal["TOOL_CALL"] = "TOOL_CALL"
    id: str
    tool_name: str
    tool_input: str


class ToolResult(EventBase):
    type: Literal["TOOL_RESULT"] = "TOOL_RESULT"
    id: str
    tool_name: str
    tool_output: str


class ApprovalRequired(EventBase):
    """A person must decide about a call; `tool_input` is exactly what will run."""

    approval_id: str
    kind: ApprovalKind = "tool"
    call_id: str
    tool_name: str
    tool_input: str = ""
    digest: str = ""
    expires_at: str | None = None
    choices: tuple[str, ...] | None = None
    answer_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    preview: str | None = None
    """What it would change, as a difference, if its tool can tell."""


class Decision(EventBase):
    """`approval_id` is `None` for a call that policy refused: nobody was asked."""

    approval_id: str | None = None
    call_id: str
    tool_name: str = ""
    by: Decider
    decided_by: str | None = None
    message: str | None = None
    edited_arguments: dict[str, Any] | None = None
    choice: str | None = None
    answer: Any = None


class Approved(Decision):
    pass


class Rejected(Decision):
    pass


class Cancelled(EventBase):
    pass


class Failed(EventBase):
    """The interaction cannot go on; `code` is stable, `message` is for people."""

    code: str
    message: str = ""
    correlation_id: str | None = None


class Complete(EventBase):
    """The last event of every interaction, however it ended."""

    status: Status
    usage: Usage | None = None
    cost: Cost | None = None


class BranchChanged(EventBase):
    """Another interaction became the tip of what the chat shows; seen by whoever watches it all."""


class ChatChanged(EventBase):
    """The chat was renamed; seen by whoever watches it all."""

    title: str | None = None


class Unknown(EventBase):
    """An event this client has no word for."""

    name: str
    data: str


Event = (
    Started
    | Queued
    | AnswerDelta
    | ThinkingDelta
    | ToolOutput
    | Thinking
    | Answer
    | ToolCall
    | ToolResult
    | ApprovalRequired
    | Approved
    | Rejected
    | Cancelled
    | Failed
    | Complete
    | BranchChanged
    | ChatChanged
    | Unknown
)

EVENT_OF: Mapping[str, type[Event]] = {
    "interaction_started": Started,
    "interaction_queued": Queued,
    "answer_delta": AnswerDelta,
    "thinking_delta": ThinkingDelta,
    "tool_output": ToolOutput,
    "thinking": Thinking,
    "answer": Answer,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "approval_required": ApprovalRequired,
    "approved": Approved,
    "rejected": Rejected,
    "cancelled": Cancelled,
    "error": Failed,
    "interaction_complete": Complete,
    "branch_changed": BranchChanged,
    "chat_changed": ChatChanged,
}


def event_of(frame: Frame, *, interaction_id: str = "") -> Event:
    """The event in a frame; `interaction_id` is for payloads that do not name theirs.

    Raises:
        ProtocolError: a known event with a payload that does not fit, or an id without a place.
    """
    payload = payload_of(frame)
    about: dict[str, Any] = {
        "seq": seq_of(frame.id) if frame.id else None,
        "event_id": frame.id or None,
        "interaction_id": str(payload.get("interaction_id") or interaction_id),
    }
    kind = EVENT_OF.get(frame.event)
    if kind is None:
        return Unknown(name=frame.event, data=frame.data, **about)
    try:
        return kind.model_validate({**payload, **about})
    except ValidationError as error:
        raise ProtocolError(f"the server sent an unusable event {frame.event!r}") from error


def payload_of(frame: Frame) -> dict[str, Any]:
    """The frame's JSON object; empty if an event without a known name has none.

    Raises:
        ProtocolError: a known event without a JSON object.
    """
    try:
        payload = orjson.loads(frame.data)
    except orjson.JSONDecodeError:
        payload = None
    if isinstance(payload, dict):
        return payload
    if frame.event in EVENT_OF:
        raise ProtocolError(f"the server sent an event {frame.event!r} that is no JSON object")
    return {}


def seq_of(event_id: str) -> int:
    """The place in the log that an event's id begins with; what follows it is the server's affair.

    Raises:
        ProtocolError: it begins with none.
    """
    place = event_id.partition("-")[0]
    if place.isascii() and place.isdigit() and len(place) < 20:
        return int(place)
    raise ProtocolError(f"the server sent an event id without a number: {event_id[:80]!r}")
