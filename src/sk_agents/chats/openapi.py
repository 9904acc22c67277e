"""The interface of the chats API, said by hand where FastAPI cannot see it: bodies and streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from sk_agents.chats.archive import Archive
from sk_agents.chats.render import EVENT_ID_PATTERN
from sk_agents.http.openapi import (
    Model,
    add_operation,
    event_stream,
    json_body,
    json_response,
    problem_responses,
)
from sk_agents.wire.frames import CHAT_FRAMES, INTERACTION_FRAMES, Frames
from sk_agents.wire.requests import (
    ApprovalDecision,
    BranchChoice,
    ChatChange,
    EditInteraction,
    NamedDecision,
    NewChat,
    Regenerate,
    StartInteraction,
)
from sk_agents.wire.views import Processed

CHAT = "/chats/{chat_id}"
INTERACTION = f"{CHAT}/interactions/{{interaction_id}}"

ID_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
# What any request may be answered with: a bad Host or header, no caller, a foreign page or user,
# nonsense, a store that is away.
ALWAYS = (400, 401, 403, 422, 503)
# And one with a body.
BODY = (*ALWAYS, 408, 413, 415)

_CHAT_ID = {
    "name": "chat_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": ID_PATTERN},
}
_INTERACTION_ID = {
    "name": "interaction_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same request sent again with the same key is done once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
_CURSOR = (
    "The id of the last event seen; the stream goes on after it. A plain number is taken as it is, "
    "without a look at which event stands there."
)
_CURSOR_SCHEMA = {"type": "string", "pattern": "^([0-9]+(-[0-9a-f]{8})?)?$"}
_LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": _CURSOR,
    "schema": _CURSOR_SCHEMA,
}
_AFTER = {
    "name": "after",
    "in": "query",
    "description": _CURSOR,
    "schema": _CURSOR_SCHEMA,
}
_PARTS = [
    {
        "name": "include",
        "in": "query",
        "description": "Show what was edited away too.",
        "schema": {"const": "superseded"},
    },
    {
        "name": "state",
        "in": "query",
        "description": "Whether each interaction comes with all that was said up to its end.",
        "schema": {"type": "boolean", "default": True},
    },
    {
        "name": "before",
        "in": "query",
        "description": "The `next` of a newer part of the chat.",
        "schema": {"type": "string", "maxLength": 160},
    },
]


def _events(description: str, frames: Frames) -> dict[str, Any]:
    """A stream whose schema is that of one of its events, as tools that read streams expect."""
    response = event_stream(description, frames)
    response["content"]["text/event-stream"]["schema"] = {
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "id": {"type": "string", "pattern": f"^{EVENT_ID_PATTERN}$"},
            "event": {"enum": list(frames)},
            "data": {"type": "string", "contentMediaType": "application/json"},
            "retry": {"type": "integer"},
        },
    }
    return response


_STREAM = _events("The interaction as it happens.", INTERACTION_FRAMES)
_STREAM_STATUSES = (*BODY, 404, 406, 409, 429)


def describe_chats(app: FastAPI) -> None:
    for (method, path), operation in {**_TALKING, **_READING, **_WRITING}.items():
        named = [item for item in (_CHAT_ID, _INTERACTION_ID) if f"{{{item['name']}}}" in path]
        parameters = [*named, *operation.get("parameters", ())]
        # Without any, those that FastAPI has found stay.
        described = {**operation, "parameters": parameters} if parameters else operation
        add_operation(app, path, method, described)


def _talk(summary: str, body: Model, examples: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "tags": ["interactions"],
        "summary": summary,
        "parameters": [_KEY],
        "requestBody": json_body(body, examples, **more),
        "responses": {200: _STREAM, **problem_responses(*_STREAM_STATUSES)},
    }


_IMAGE = {"content_type": "image", "content": "data:image/png;base64,iVBORw0KGgo="}

_TALKING: dict[tuple[str, str], dict[str, Any]] = {
    ("post", f"{CHAT}/interactions"): _talk(
        "Say something; a chat that is not there is made",
        StartInteraction,
        {
            "plain": {"user_message": "What's the weather in Barcelona?"},
            "with a picture": {"user_message": "What is this?", "items": [_IMAGE]},
            "in its turn": {"user_message": "And then?", "on_busy": "enqueue"},
        },
    ),
    ("post", f"{INTERACTION}/edit"): _talk(
        "Say something else instead; the old answer stays as another branch",
        EditInteraction,
        {"plain": {"new_user_message": "Actually, show me weather in Madrid"}},
    ),
    ("post", f"{INTERACTION}/regenerate"): _talk(
        "Ask the same once more",
        Regenerate,
        {"plain": {}},
        required=False,
    ),
}

_READING: dict[tuple[str, str], dict[str, Any]] = {
    ("get", "/agents"): {"responses": problem_responses(*ALWAYS)},
    ("get", "/chats"): {"responses": problem_responses(*ALWAYS)},
    ("get", CHAT): {"parameters": _PARTS, "responses": problem_responses(*ALWAYS, 404)},
    ("get", f"{CHAT}/branches"): {"responses": problem_responses(*ALWAYS, 404)},
    ("get", INTERACTION): {"responses": problem_responses(*ALWAYS, 404)},
    ("get", "/approvals"): {"responses": problem_responses(*ALWAYS)},
    ("get", "/approvals/{approval_id}"): {"responses": problem_responses(*ALWAYS, 404)},
    ("get", "/grants"): {"responses": problem_responses(*ALWAYS)},
    ("get", f"{CHAT}/export"): {
        "responses": {
            200: json_response("The chat as a document.", Archive),
            **problem_responses(*ALWAYS, 404),
        }
    },
    ("get", f"{INTERACTION}/events"): {
        "parameters": [_LAST_EVENT_ID, _AFTER],
        "responses": {
            200: _STREAM,
            204: {"description": "The reader has seen its end."},
            **problem_responses(*ALWAYS, 404, 406, 410, 429),
        },
    },
    ("get", f"{CHAT}/events"): {
        "parameters": [_LAST_EVENT_ID, _AFTER],
        "responses": {
            200: _events("The chat as it goes on, without end.", CHAT_FRAMES),
            **problem_responses(*ALWAYS, 404, 406, 410, 429),
        },
    },
}

_YES = {"approved": True}
_DECISIONS: dict[str, Any] = {
    "approve": _YES,
    "reject": {"approved": False, "message": "not to her"},
    "with other arguments": {**_YES, "edited_arguments": {"to": "bob"}},
    "for the whole chat": {**_YES, "remember": "thread"},
    "an unknown outcome": {**_YES, "choice": "retry"},
    "a question": {**_YES, "answer": "the blue one"},
}
_PROCESSED = json_response(
    "Decided.",
    Processed,
    {"status": "processed", "approval_id": "approval_abc123", "approved": True},
)

_WRITING: dict[tuple[str, str], dict[str, Any]] = {
    ("post", "/chats"): {
        "parameters": [_KEY],
        "requestBody": json_body(
            NewChat,
            {"any": {}, "named": {"chat_id": "chat_123", "title": "Weather"}},
            required=False,
        ),
        "responses": problem_responses(*BODY, 409, 429),
    },
    ("post", "/chats/import"): {
        "parameters": [
            {"name": "chat_id", "in": "query", "schema": _CHAT_ID["schema"]},
            _KEY,
        ],
        "requestBody": json_body(Archive),
        "responses": problem_responses(*BODY, 409, 429),
    },
    ("patch", CHAT): {
        "requestBody": json_body(ChatChange, {"plain": {"title": "The weather"}}),
        "responses": problem_responses(*BODY, 404, 409),
    },
    ("delete", CHAT): {"responses": problem_responses(*ALWAYS, 404, 409)},
    ("post", f"{CHAT}/branch"): {
        "requestBody": json_body(BranchChoice, {"plain": {"interaction_id": "int_abc123"}}),
        "responses": problem_responses(*BODY, 404, 409),
    },
    ("post", f"{INTERACTION}/approve"): {
        "parameters": [_KEY],
        "requestBody": json_body(
            NamedDecision,
            {name: {"approval_id": "approval_abc123", **body} for name, body in _DECISIONS.items()},
        ),
        "responses": {200: _PROCESSED, **problem_responses(*BODY, 404, 409)},
    },
    ("post", "/approvals/{approval_id}"): {
        "parameters": [_KEY],
        "requestBody": json_body(ApprovalDecision, _DECISIONS),
        "responses": {200: _PROCESSED, **problem_responses(*BODY, 404, 409)},
    },
    ("post", f"{INTERACTION}/cancel"): {"responses": problem_responses(*ALWAYS, 404, 409)},
    ("delete", "/grants/{grant_id}"): {"responses": problem_responses(*ALWAYS, 404, 409)},
}
