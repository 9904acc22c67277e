"""Runs as the wire's interactions, for the surface that serves them and the store that keeps them.

An interaction is derived: a pure function of the fold. Where a chat lies is not known here.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from sk_agents.engine.calls.call import Approval, Call
from sk_agents.engine.events import ImportedItem, VoteCast
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import (
    TERMINAL,
    Attachment,
    Audience,
    Message,
    Part,
    RunStatus,
    ToolCall,
)
from sk_agents.engine.run.conversation import run_messages
from sk_agents.wire.events import (
    AgentEvent,
    AnswerEvent,
    AttachmentView,
    InteractionStatus,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
    cut_reason,
)
from sk_agents.wire.views import AgentState, ChatMessage, Interaction, SteeringView

_STATUS = {
    RunStatus.QUEUED: InteractionStatus.RUNNING,
    RunStatus.RUNNING: InteractionStatus.RUNNING,
    RunStatus.WAITING: InteractionStatus.WAITING_APPROVAL,
    RunStatus.COMPLETED: InteractionStatus.COMPLETED,
    RunStatus.FAILED: InteractionStatus.FAILED,
    RunStatus.CANCELLED: InteractionStatus.CANCELLED,
}


def spelled_time(moment: datetime) -> str:
    """ISO 8601, in UTC."""
    return moment.isoformat().replace("+00:00", "Z")


@lru_cache(maxsize=4096)
def chat_thread_id(user_id: str, chat_id: str) -> str:
    """Where a user's chat lies: everybody has chat ids of their own."""
    digest = hashlib.sha256(f"chats\0{user_id}\0{chat_id}".encode()).hexdigest()
    return str(UUID(digest[:32]))


def interaction_of(state: ThreadState, run_id: str, *, with_state: bool = True) -> Interaction:
    """The run as its reader sees it, with its final state or without.

    Raises:
        StateCorrupt: the log has no such run, or the run's parent is missing.
    """
    run = state.run(run_id)
    ended = run.phase in TERMINAL
    return Interaction(
        id=run.run_id,
        status=status_of(run),
        user_message=run.message.text if run.message else "",
        agent_events=agent_events(run),
        final_agent_state=agent_state(state, run_id) if ended and with_state else None,
        created_at=spelled_time(run.created_at),
        completed_at=spelled_time(run.completed_at) if run.completed_at else None,
        parent_id=run.parent_run,
        edits=run.edits,
        steering=tuple(_steering(run)) if run.steering else (),
    )


def status_of(run: Run) -> InteractionStatus:
    return _STATUS[run.status]


def agent_events(run: Run) -> list[AgentEvent]:
    """What the agent did, in the order of the log.

    A call shows once it started, or when it could not run at all: one that a person refused was
    asked about, not made.
    """
    return [event for _, event in dated_events(run)]


def dated_events(run: Run) -> list[tuple[int, AgentEvent]]:
    """The same with their places in the log."""
    dated: list[tuple[int, AgentEvent]] = [
        (thought.seq, ThinkingEvent(content=thought.content, spoken=thought.spoken))
        for thought in run.thoughts
    ]
    for call in run.calls.values():
        dated.extend(_call_events(call))
    if run.answer is not None:
        reason = cut_reason(run.answer.finish_reason)
        answer = AnswerEvent(content=run.answer.content, finish_reason=reason)
        dated.append((run.answer.seq, answer))
    return sorted(dated, key=lambda pair: pair[0])


def _steering(run: Run) -> Iterator[SteeringView]:
    places = [seq for seq, _ in dated_events(run)]
    for one in run.steering:
        delivery = one.delivery
        yield SteeringView(
            message_id=one.said.message_id,
            content=one.said.content,
            at=spelled_time(one.said.at),
            delivered=delivery is not None,
            after_events=bisect(places, one.said.seq),
            delivered_after_events=bisect(places, delivery.seq) if delivery is not None else None,
        )


def agent_state(state: ThreadState, run_id: str) -> AgentState:
    """The conversation from its root to the end of this run, as a model is sent it."""
    messages = messages_before(state)
    for run in state.path(run_id):
        messages.extend(messages_of(run))
    return AgentState(messages=messages)


def messages_before(state: ThreadState) -> list[ChatMessage]:
    """What was said elsewhere: every state begins with it."""
    return [_imported_message(item) for item in state.imported]


def messages_of(run: Run) -> list[ChatMessage]:
    """What this run adds to the state of the one it follows."""
    return [_spelled(message) for message in run_messages(run)]


def _call_events(call: Call) -> Iterator[tuple[int, AgentEvent]]:
    began = call.started or (call.proposal if call.proposal.problem is not None else None)
    if began is None:
        return
    made = call.wanted
    spelled = json.dumps(made.arguments, ensure_ascii=False)
    grant_id = call.started.grant_id if call.started is not None else None
    yield (
        began.seq,
        ToolCallEvent(id=made.id, tool_name=made.name, tool_input=spelled, grant_id=grant_id),
    )
    if call.finished is not None:
        output = call.finished.result
        yield (
            call.finished.seq,
            ToolResultEvent(
                id=made.id,
                tool_name=made.name,
                tool_output=output,
                attachments=attachment_views(call.finished.attachments),
            ),
        )


def attachment_views(
    attachments: Sequence[Attachment] | None,
) -> tuple[AttachmentView, ...] | None:
    """What is said of them; what they hold is read one by one."""
    if not attachments:
        return None
    return tuple(
        AttachmentView(
            media_type=one.media_type,
            size=one.size,
            name=one.name,
            link=one.uri if one.is_link else None,
        )
        for one in attachments
    )


def _spelled(message: Message) -> ChatMessage:
    content: str | list[dict[str, Any]] = message.content
    if message.parts and message.role != "tool":
        content = [spelled_part(part) for part in message.parts]
    return ChatMessage(
        role=message.role,
        content=content,
        tool_calls=[_spelled_call(call) for call in message.tool_calls] or None,
        tool_call_id=message.tool_call_id,
    )


def _spelled_call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def spelled_part(part: Part) -> dict[str, Any]:
    """As OpenAI's chat completions have it."""
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": part.content}}
    return {"type": "text", "text": part.text}


def _imported_message(item: ImportedItem) -> ChatMessage:
    if item.content_type == "image":
        return ChatMessage(
            role=item.role, content=[spelled_part(Part(kind="image", content=item.content))]
        )
    return ChatMessage(role=item.role, content=item.content)


def review_payload(approval: Approval) -> dict[str, Any]:
    """Who decides about a call, who has voted and how many are missing: a `ReviewView`."""
    review = approval.request.review
    assert review is not None
    payload: dict[str, Any] = {
        "audience": audience_payload(approval.audience),
        "quorum": review.quorum,
        "not_requester": review.not_requester,
        "on_expiry": review.on_expiry,
        "share_conversation": review.share_conversation,
        "votes": [_vote_payload(vote) for vote in approval.votes.values()],
        "missing": approval.missing,
    }
    if review.escalate_to is not None:
        payload["escalate_to"] = review.escalate_to
    return payload


def audience_payload(audience: Audience) -> dict[str, Any]:
    return {"roles": audience.roles, "groups": audience.groups, "users": audience.users}


def _vote_payload(vote: VoteCast) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "voter": vote.voter,
        "voter_name": vote.voter_name,
        "right": vote.right,
        "approved": vote.approved,
        "at": spelled_time(vote.at),
    }
    return payload if vote.message is None else payload | {"message": vote.message}
