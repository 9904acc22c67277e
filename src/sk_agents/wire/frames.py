"""The events of both kinds of stream with their models and examples, for descriptions and checks.

The frames themselves are made by `chats/render.py`, without these: a stream pays for no validation
of the server's own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import create_model

from sk_agents.wire.events import EVENTS, IN_CHAT, SOMETIMES, StreamEnd, WireModel

Frames = Mapping[str, tuple[type[WireModel], dict[str, Any]]]
"""By the event's name: the model of its data and an example."""

_MODELS: Mapping[str, type[WireModel]] = {**EVENTS, "stream_end": StreamEnd}
# These are the same on both kinds of stream.
_PREVIEWS = ("answer_delta", "thinking_delta", "tool_output", "stream_end")
_CHAT_ALONE = ("branch_changed", "chat_changed", "feedback_given")

_INTERACTION = {"interaction_id": "int_abc123"}
_TOOL = {"id": "call_123", "tool_name": "search"}
_CALL = {"call_id": "call_123", "tool_name": "search"}
_DECIDED = {
    "approval_id": "approval_abc123",
    **_INTERACTION,
    **_CALL,
    "by": "human",
    "decided_by": "alice",
}
_VOTE = {
    "approval_id": "approval_abc123",
    **_INTERACTION,
    **_CALL,
    "missing": 1,
    "voter": "bob",
    "voter_name": "Bob",
}
_PREVIEW = {**_INTERACTION, "round": 1, "attempt": 1, "offset": 0}
_EXAMPLES: Mapping[str, dict[str, Any]] = {
    "interaction_started": {
        **_INTERACTION,
        "chat_id": "chat_123",
        "status": "RUNNING",
        "created_at": "2025-01-15T10:00:00+00:00",
    },
    "interaction_queued": {**_INTERACTION, "position": 1},
    "thinking": {"type": "THINKING", "content": "Let me look that up."},
    "tool_call": {"type": "TOOL_CALL", **_TOOL, "tool_input": '{"query": "weather"}'},
    "tool_result": {"type": "TOOL_RESULT", **_TOOL, "tool_output": "Sunny, 22 degrees"},
    "answer": {"type": "ANSWER", "content": "It is sunny."},
    "approval_required": {
        "approval_id": "approval_abc123",
        **_INTERACTION,
        "kind": "tool",
        **_CALL,
        "tool_input": '{"query": "weather"}',
        "digest": "5d41402abc4b2a76b9719d911017c592",
        "expires_at": "2025-01-16T10:00:00+00:00",
    },
    "vote_cast": {**_VOTE, "approved": True},
    "vote_withdrawn": {**_VOTE, "missing": 2},
    "review_extended": {
        "approval_id": "approval_abc123",
        **_INTERACTION,
        **_CALL,
        "missing": 1,
        "audience": {"roles": [], "groups": ["board"], "users": []},
        "expires_at": "2025-01-16T10:30:00+00:00",
    },
    "approved": _DECIDED,
    "rejected": {**_DECIDED, "message": "not this one"},
    "steered": {**_INTERACTION, "message_id": "msg_abc123", "content": "Only in Spain."},
    "steering_delivered": {**_INTERACTION, "message_ids": ["msg_abc123"]},
    "stopping": _INTERACTION,
    "cancelled": _INTERACTION,
    "error": {
        **_INTERACTION,
        "code": "llm_unavailable",
        "message": "The model's provider cannot be reached.",
        "correlation_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    },
    "interaction_complete": {
        **_INTERACTION,
        "status": "COMPLETED",
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
    },
    "answer_delta": {**_PREVIEW, "content": "It is "},
    "thinking_delta": {**_PREVIEW, "content": "Let "},
    "tool_output": {**_INTERACTION, "call_id": "call_123", "offset": 0, "chunk": "1 file\n"},
    "stream_end": {
        "reason": "shutting_down",
        "resume_url": "/chats/chat_123/interactions/int_abc123/events",
    },
    "branch_changed": _INTERACTION,
    "chat_changed": {"title": "The weather"},
    "feedback_given": {**_INTERACTION, "rating": "up", "note": "Just what I needed."},
}
_CHAT_EXAMPLE = {
    "at": "2025-01-15T10:00:00+00:00",
    "user_message": "How is the weather?",
    "agent": None,
    "parent_id": None,
    "edits": None,
}


def _in_chat(model: type[WireModel], example: dict[str, Any]) -> tuple[type[WireModel], Any]:
    """The same on a chat's own stream, where the fields marked `InChat` are sent too."""
    fields: dict[str, Any] = {
        name: (Annotated[field.annotation, SOMETIMES], None)
        if SOMETIMES in field.metadata
        else (field.annotation, ...)
        for name, field in model.model_fields.items()
        if IN_CHAT in field.metadata
    }
    more = {name: value for name, value in _CHAT_EXAMPLE.items() if name in fields}
    fields["at"] = (str, ...)
    if "interaction_id" in fields:
        fields["interaction_id"] = (Annotated[str | None, SOMETIMES], None)
    made: type[WireModel] = create_model(f"Chat{model.__name__}", __base__=model, **fields)
    return made, {**example, **more}


INTERACTION_FRAMES: Frames = {
    name: (model, _EXAMPLES[name]) for name, model in _MODELS.items() if name not in _CHAT_ALONE
}
CHAT_FRAMES: Frames = {
    name: (model, _EXAMPLES[name]) if name in _PREVIEWS else _in_chat(model, _EXAMPLES[name])
    for name, model in _MODELS.items()
}
