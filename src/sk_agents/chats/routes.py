"""The chats API as one table: what is served where, what it takes, what it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sk_agents.chats.approvals import ApprovalEndpoints
from sk_agents.chats.archive import Archive
from sk_agents.chats.collection import ChatEndpoints, ImportChat, import_parameter
from sk_agents.chats.context import ContextEndpoints, ContextSource
from sk_agents.chats.feedback import FeedbackEndpoints
from sk_agents.chats.interactions import (
    EditEndpoint,
    InteractionEndpoints,
    RegenerateEndpoint,
    StartEndpoint,
)
from sk_agents.chats.render import EVENT_ID_PATTERN
from sk_agents.chats.requests import (
    CHAT_ERRORS,
    ChatResources,
    chat_parameter,
    cursor_parameters,
    interaction_parameter,
    key_parameter,
)
from sk_agents.chats.sharing import ShareEndpoints
from sk_agents.chats.sign_ins import PATH as SIGN_INS
from sk_agents.chats.sign_ins import SignInEndpoints
from sk_agents.chats.usage import UsageEndpoints
from sk_agents.http.caller import DECIDERS, acting_caller
from sk_agents.http.operations import Events, Operation
from sk_agents.wire.requests import EditInteraction, Regenerate, StartInteraction
from sk_agents.wire.views import BranchList, ChatSummary, ChatView, SharedChat

CHAT = "/chats/{chat_id}"
SHARED = "/shared/{share_id}"
INTERACTION = f"{CHAT}/interactions/{{interaction_id}}"

# What any request may be answered with: a bad Host or header, no caller, a foreign page or user,
# nonsense, a request too many, a store that is away.
ALWAYS = (400, 401, 403, 422, 429, 503)
# And one with a body.
BODY = (*ALWAYS, 408, 413, 415)
STARTED = (*BODY, 404, 406, 409)
STREAMED = (*ALWAYS, 404, 406, 410)

_IMAGE = {"content_type": "image", "content": "data:image/png;base64,iVBORw0KGgo="}
_YES = {"approved": True}
_DECISIONS: dict[str, Any] = {
    "approve": _YES,
    "reject": {"approved": False, "message": "not to her"},
    "with other arguments": {**_YES, "edited_arguments": {"to": "bob"}},
    "for the whole chat": {**_YES, "remember": "thread"},
    "an unknown outcome": {**_YES, "choice": "retry"},
    "a question": {**_YES, "answer": "the blue one"},
}
_PROCESSED = {"status": "processed", "approval_id": "approval_abc123", "approved": True}


def _interaction_events() -> Events:
    # The models of events are for the description alone: a server that is never asked for it does
    # not build them.
    from sk_agents.wire.frames import INTERACTION_FRAMES  # noqa: PLC0415

    return INTERACTION_FRAMES


def _chat_events() -> Events:
    from sk_agents.wire.frames import CHAT_FRAMES  # noqa: PLC0415

    return CHAT_FRAMES


def sign_in_operations(endpoints: SignInEndpoints) -> list[Operation]:
    """Of users at MCP servers. Those without a caller are for browsers that come from elsewhere."""
    pages: dict[tuple[str, str], Callable[..., Any]] = {
        ("GET", f"{SIGN_INS}/open"): endpoints.open,
        ("POST", f"{SIGN_INS}/open"): endpoints.confirm,
        ("GET", f"{SIGN_INS}/callback"): endpoints.callback,
        ("GET", f"{SIGN_INS}/client.json"): endpoints.client,
    }
    return [
        *(
            Operation(method=method, path=path, endpoint=endpoint, who=None, is_described=False)
            for (method, path), endpoint in pages.items()
        ),
        _context("GET", SIGN_INS, endpoints.listing, ALWAYS),
        _context(
            "POST",
            SIGN_INS,
            endpoints.begin,
            (*BODY, 502),
            status=201,
            examples={"plain": {"server": "docs"}},
        ),
        _context("DELETE", f"{SIGN_INS}/{{server}}", endpoints.sign_out, ALWAYS, status=204),
    ]


def chat_operations(resources: ChatResources, context: ContextSource) -> list[Operation]:
    chats = ChatEndpoints(resources)
    interactions = InteractionEndpoints(resources)
    shares = ShareEndpoints(resources)
    usage = UsageEndpoints(resources.usage, resources.budgets)
    approvals = ApprovalEndpoints()
    feedback = FeedbackEndpoints()
    servers = ContextEndpoints(resources, context)
    return [
        # The ones that run all the time come first: routes are tried in their order.
        _starting(
            f"{CHAT}/interactions",
            StartEndpoint(resources),
            "Say something; a chat that is not there is made",
            body=StartInteraction,
            examples={
                "plain": {"user_message": "What's the weather in Barcelona?"},
                "with a picture": {"user_message": "What is this?", "items": [_IMAGE]},
                "in its turn": {"user_message": "And then?", "on_busy": "enqueue"},
            },
            depends=(chat_parameter, key_parameter),
        ),
        _starting(
            f"{INTERACTION}/edit",
            EditEndpoint(resources),
            "Say something else instead; the old answer stays as another branch",
            body=EditInteraction,
            examples={"plain": {"new_user_message": "Actually, show me weather in Madrid"}},
            depends=(chat_parameter, interaction_parameter, key_parameter),
        ),
        _starting(
            f"{INTERACTION}/regenerate",
            RegenerateEndpoint(resources),
            "Ask the same once more",
            body=Regenerate,
            is_body_optional=True,
            examples={"plain": {}},
            depends=(chat_parameter, interaction_parameter, key_parameter),
        ),
        _chats("GET", "/agents", chats.agents, ALWAYS),
        _chats("GET", "/chats", chats.listing, ALWAYS),
        _chats("GET", "/tags", chats.tags, ALWAYS),
        _chats(
            "POST",
            "/chats",
            chats.make,
            (*BODY, 409),
            status=201,
            examples={"any": {}, "named": {"chat_id": "chat_123", "title": "Weather"}},
        ),
        _chats(
            "POST",
            "/chats/import",
            ImportChat(resources),
            (*BODY, 409),
            summary="Bring an exported chat back",
            status=201,
            body=Archive,
            answer=ChatSummary,
            depends=(import_parameter, key_parameter),
        ),
        _chats("GET", CHAT, chats.read, (*ALWAYS, 404), answer=ChatView),
        _chats(
            "PATCH",
            CHAT,
            chats.change,
            (*BODY, 404, 409),
            examples={
                "title": {"title": "The weather"},
                "bin": {"place": "bin"},
                "pin": {"pinned": True},
                "tags": {"tags": ["travel", "2026"]},
            },
        ),
        _chats("DELETE", CHAT, chats.delete, (*ALWAYS, 404, 409), status=204),
        _chats(
            "GET",
            f"{CHAT}/events",
            chats.events,
            STREAMED,
            outcome="The chat as it goes on, without end.",
            events=_chat_events,
            event_id=f"^{EVENT_ID_PATTERN}$",
            depends=(cursor_parameters,),
        ),
        _chats("GET", f"{CHAT}/passages", chats.passages, (*ALWAYS, 404)),
        _chats("GET", f"{CHAT}/shares", shares.listing, (*ALWAYS, 404)),
        _chats(
            "POST",
            f"{CHAT}/shares",
            shares.make,
            (*BODY, 404, 409),
            status=201,
            examples={"all that is shown": {}, "up to": {"interaction_id": "int_abc123"}},
        ),
        _chats("DELETE", SHARED, shares.revoke, (*ALWAYS, 404, 409), status=204),
        _chats(
            "GET",
            SHARED,
            shares.read,
            (*ALWAYS, 404),
            outcome="What the link shows.",
            answer=SharedChat,
        ),
        _chats("POST", f"{SHARED}/copy", shares.copy, (*ALWAYS, 404, 409), status=201),
        _chats(
            "GET",
            f"{CHAT}/branches",
            chats.branches,
            (*ALWAYS, 404),
            outcome="The tree of the conversation.",
            answer=BranchList,
        ),
        _chats(
            "POST",
            f"{CHAT}/branch",
            chats.switch,
            (*BODY, 404, 409),
            outcome="The tree of the conversation.",
            answer=BranchList,
            examples={"plain": {"interaction_id": "int_abc123"}},
        ),
        _chats(
            "GET",
            f"{CHAT}/export",
            chats.export,
            (*ALWAYS, 404),
            outcome="The chat as a document.",
            answer=Archive,
        ),
        _interactions("GET", INTERACTION, interactions.read, (*ALWAYS, 404)),
        _interactions(
            "GET",
            f"{INTERACTION}/events",
            interactions.events,
            STREAMED,
            outcome="The interaction as it happens.",
            events=_interaction_events,
            event_id=f"^{EVENT_ID_PATTERN}$",
            others={204: "The reader has seen its end."},
            depends=(cursor_parameters,),
        ),
        _interactions(
            "GET",
            f"{INTERACTION}/attachments/{{call_id}}/{{number}}",
            interactions.attachment,
            (*ALWAYS, 404),
            outcome="The attachment, as it is.",
            media_type="application/octet-stream",
        ),
        _interactions(
            "POST",
            f"{INTERACTION}/approve",
            interactions.approve,
            (*BODY, 404, 409),
            examples={
                name: {"approval_id": "approval_abc123", **body}
                for name, body in _DECISIONS.items()
            },
            outcome="Decided.",
            example=_PROCESSED,
        ),
        _interactions(
            "POST",
            f"{INTERACTION}/steer",
            interactions.steer,
            (*BODY, 404, 409),
            examples={"plain": {"user_message": "Only in Spain, please."}},
        ),
        _interactions(
            "POST",
            f"{INTERACTION}/cancel",
            interactions.cancel,
            (*BODY, 404, 409),
            examples={"at once": {}, "after this step": {"after": "step"}},
        ),
        _interactions(
            "PUT",
            f"{INTERACTION}/feedback",
            feedback.give,
            (*BODY, 404, 409),
            examples={"up": {"rating": "up"}, "down": {"rating": "down", "note": "Wrong year."}},
        ),
        _interactions(
            "DELETE", f"{INTERACTION}/feedback", feedback.withdraw, (*ALWAYS, 404, 409), status=204
        ),
        _interactions("GET", "/feedback", feedback.export, ALWAYS, roles=("operator",)),
        _interactions("GET", "/interactions/{interaction_id}", interactions.find, (*ALWAYS, 404)),
        _approvals("GET", "/approvals", approvals.inbox, ALWAYS, roles=DECIDERS),
        _approvals(
            "GET", "/approvals/{approval_id}", approvals.read, (*ALWAYS, 404), roles=DECIDERS
        ),
        _approvals(
            "POST",
            "/approvals/{approval_id}",
            approvals.respond,
            (*BODY, 404, 409),
            examples=_DECISIONS,
            outcome="Decided.",
            example=_PROCESSED,
            roles=DECIDERS,
        ),
        _approvals(
            "DELETE",
            "/approvals/{approval_id}/vote",
            approvals.withdraw,
            (*ALWAYS, 404, 409),
            status=204,
            roles=DECIDERS,
        ),
        _usage(
            "GET",
            "/usage",
            usage.report,
            ALWAYS,
            roles=("user", "operator"),
        ),
        _usage("GET", "/budgets", usage.budgets, ALWAYS, roles=("user", "operator")),
        _context("GET", "/prompts", servers.prompts, ALWAYS),
        _context(
            "POST",
            "/prompts/fill",
            servers.fill,
            (*BODY, 404, 502),
            examples={"plain": {"server": "docs", "name": "review", "arguments": {"code": "x"}}},
        ),
        _context("GET", "/resources", servers.listing, ALWAYS),
        _context(
            "POST",
            "/resources/read",
            servers.read,
            (*BODY, 502),
            examples={"plain": {"server": "docs", "uri": "file:///handbook.md"}},
        ),
        _approvals("GET", "/grants", approvals.grants, ALWAYS),
        _approvals(
            "DELETE", "/grants/{grant_id}", approvals.revoke, (*ALWAYS, 404, 409), status=204
        ),
    ]


def _starting(path: str, endpoint: Any, summary: str, **more: Any) -> Operation:
    return _interactions(
        "POST",
        path,
        endpoint,
        STARTED,
        summary=summary,
        outcome="The interaction as it happens.",
        events=_interaction_events,
        event_id=f"^{EVENT_ID_PATTERN}$",
        **more,
    )


def _of(tag: str) -> Callable[..., Operation]:
    def operation(
        method: str, path: str, endpoint: Any, errors: tuple[int, ...], **more: Any
    ) -> Operation:
        return Operation(
            method=method,
            path=path,
            endpoint=endpoint,
            errors=errors,
            errors_as=CHAT_ERRORS,
            tag=tag,
            who=acting_caller,
            **more,
        )

    return operation


_chats, _interactions, _approvals = _of("chats"), _of("interactions"), _of("approvals")
_usage, _context = _of("usage"), _of("context")
