"""What each event of a stream says: its data as a model, for descriptions and for whoever checks.

The frames themselves are made by `render.py`, without these: a stream pays for no validation of
our own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from sk_agents.chats.views import CostView, UsageView
from sk_agents.interactions import (
    AnswerEvent,
    InteractionStatus,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
)


class FrameData(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InteractionStarted(FrameData):
    interaction_id: str
    chat_id: str
    status: InteractionStatus
    created_at: str


class InteractionQueued(FrameData):
    interaction_id: str
    position: int = Field(ge=1)


class InteractionComplete(FrameData):
    interaction_id: str
    status: InteractionStatus
    usage: UsageView
    cost: CostView | None = None


class ApprovalRequired(FrameData):
    """`tool_input` is exactly what will run; `digest` stands for all of it.

    `preview` is what the call would have changed when it was asked about, as a unified diff.
    """

    approval_id: str
    interaction_id: str
    kind: Literal["tool", "outcome_unknown", "question", "auth"]
    call_id: str
    tool_name: str
    tool_input: str
    digest: str
    expires_at: str | None
    choices: tuple[str, ...] | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    preview: str | None = None


class Decided(FrameData):
    """`approval_id` is null for a call that policy refused: nobody was asked."""

    approval_id: str | None
    interaction_id: str
    call_id: str
    tool_name: str
    by: Literal["human", "policy", "timeout", "cancel", "failure"]
    decided_by: str | None
    message: str | None = None
    edited_arguments: dict[str, Any] | None = None
    choice: Literal["done", "retry", "give_up"] | None = None
    answer: Any = None


class InteractionCancelled(FrameData):
    interaction_id: str


class InteractionError(FrameData):
    interaction_id: str
    code: str
    message: str
    correlation_id: str | None


class TextPreview(FrameData):
    """Text as it appears, from character `offset` on; void once a higher `attempt` begins."""

    interaction_id: str
    round: int
    attempt: int
    offset: int
    content: str


class ToolOutput(FrameData):
    """What a tool prints while it runs, from character `offset` on; anew with each `tool_call`."""

    interaction_id: str
    call_id: str
    offset: int
    chunk: str


class StreamEnd(FrameData):
    """The stream ends early; the interaction does not. Go on at `resume_url`."""

    reason: str
    resume_url: str


class BranchChanged(FrameData):
    """Another interaction is the last one to be seen."""

    interaction_id: str | None


class ChatChanged(FrameData):
    title: str | None


_TOOL = {"id": "call_123", "tool_name": "search"}
_DECIDED = {
    "approval_id": "approval_abc123",
    "interaction_id": "int_abc123",
    "call_id": "call_123",
    "tool_name": "search",
    "by": "human",
    "decided_by": "alice",
}

Frames = Mapping[str, tuple[type[BaseModel], dict[str, Any]]]
"""By the event's name: the model of its data and an example."""

INTERACTION_FRAMES: Frames = {
    "interaction_started": (
        InteractionStarted,
        {
            "interaction_id": "int_abc123",
            "chat_id": "chat_123",
            "status": "RUNNING",
            "created_at": "2025-01-15T10:00:00+00:00",
        },
    ),
    "interaction_queued": (InteractionQueued, {"interaction_id": "int_abc123", "position": 1}),
    "thinking": (ThinkingEvent, {"type": "THINKING", "content": "Let me look that up."}),
    "tool_call": (
        ToolCallEvent,
        {"type": "TOOL_CALL", **_TOOL, "tool_input": '{"query": "weather"}'},
    ),
    "tool_result": (
        ToolResultEvent,
        {"type": "TOOL_RESULT", **_TOOL, "tool_output": "Sunny, 22 degrees"},
    ),
    "answer": (AnswerEvent, {"type": "ANSWER", "content": "It is sunny."}),
    "approval_required": (
        ApprovalRequired,
        {
            "approval_id": "approval_abc123",
            "interaction_id": "int_abc123",
            "kind": "tool",
            "call_id": "call_123",
            "tool_name": "search",
            "tool_input": '{"query": "weather"}',
            "digest": "5d41402abc4b2a76b9719d911017c592",
            "expires_at": "2025-01-16T10:00:00+00:00",
        },
    ),
    "approved": (Decided, _DECIDED),
    "rejected": (Decided, {**_DECIDED, "message": "not this one"}),
    "cancelled": (InteractionCancelled, {"interaction_id": "int_abc123"}),
    "error": (
        InteractionError,
        {
            "interaction_id": "int_abc123",
            "code": "llm_unavailable",
            "message": "The model's provider cannot be reached.",
            "correlation_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        },
    ),
    "interaction_complete": (
        InteractionComplete,
        {
            "interaction_id": "int_abc123",
            "status": "COMPLETED",
            "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
        },
    ),
    "answer_delta": (
        TextPreview,
        {
            "interaction_id": "int_abc123",
            "round": 1,
            "attempt": 1,
            "offset": 0,
            "content": "It is ",
        },
    ),
    "thinking_delta": (
        TextPreview,
        {"interaction_id": "int_abc123", "round": 1, "attempt": 1, "offset": 0, "content": "Let "},
    ),
    "tool_output": (
        ToolOutput,
        {"interaction_id": "int_abc123", "call_id": "call_123", "offset": 0, "chunk": "1 file\n"},
    ),
    "stream_end": (
        StreamEnd,
        {
            "reason": "shutting_down",
            "resume_url": "/chats/chat_123/interactions/int_abc123/events",
        },
    ),
}

_AT = "2025-01-15T10:00:00+00:00"
_PREVIEWS = ("answer_delta", "thinking_delta", "tool_output", "stream_end")
_SAID: dict[str, Any] = {"user_message": (str | None, ...), "agent": (str | None, ...)}
_FOLLOWS: dict[str, Any] = {"parent_id": (str | None, ...), "edits": (str | None, ...)}
_MORE = {"interaction_started": _SAID | _FOLLOWS, "interaction_queued": _SAID}
_EXAMPLES = {
    "interaction_started": {
        "user_message": "How is the weather?",
        "agent": None,
        "parent_id": None,
        "edits": None,
    },
    "interaction_queued": {"user_message": "And tomorrow?", "agent": None},
}


def _in_chat(name: str, model: type[BaseModel]) -> type[BaseModel]:
    """The same on a chat's own stream: it also says when, of which interaction and how it began."""
    fields: dict[str, Any] = {"at": (str, ...), **_MORE.get(name, {})}
    if "interaction_id" not in model.model_fields:
        fields["interaction_id"] = (str | None, None)
    made: type[BaseModel] = create_model(f"Chat{model.__name__}", __base__=model, **fields)
    return made


_ALL: Frames = {
    **INTERACTION_FRAMES,
    "branch_changed": (BranchChanged, {"interaction_id": "int_abc123"}),
    "chat_changed": (ChatChanged, {"title": "The weather"}),
}
CHAT_FRAMES: Frames = {
    name: (model, example)
    if name in _PREVIEWS
    else (_in_chat(name, model), {**example, "at": _AT, **_EXAMPLES.get(name, {})})
    for name, (model, example) in _ALL.items()
}
