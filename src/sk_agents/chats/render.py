"""From the engine's events and runs to what `wire` describes: the frames of a stream, and views.

An event has at most one frame, the same each time. A stored frame's id names its event, so a reader
can go on from any of them; previews carry none. Frames are made as dicts, not as the wire's models:
a stream pays for no validation of the server's own words. `tests/wire` compares them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import orjson
from pydantic import ValidationError

from sk_agents.engine.calls.call import SIGN_IN, Approval, Call
from sk_agents.engine.calls.previews import PICTURE, TABLE
from sk_agents.engine.calls.reviews import right_to_vote
from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    BranchChanged,
    Cancelled,
    CancelRequested,
    Event,
    Failed,
    Rated,
    ReviewExtended,
    RunEnded,
    RunQueued,
    RunStarted,
    Steered,
    SteeringDelivered,
    Thinking,
    ThreadChanged,
    ToolFinished,
    ToolProposed,
    ToolStarted,
    VoteCast,
    VoteWithdrawn,
)
from sk_agents.engine.log.state import PLACE, Run, ThreadState
from sk_agents.engine.models import (
    BLOB,
    TERMINAL,
    ApprovalState,
    Cost,
    Part,
    Thread,
    Usage,
    UserInput,
)
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.reading.watch import Item as WatchedItem
from sk_agents.engine.threads.catalog import Asked, Granted
from sk_agents.exceptions import TealError
from sk_agents.http.caller import Caller
from sk_agents.http.sse import frame, last_frame
from sk_agents.interactions import (
    attachment_views,
    audience_payload,
    interaction_of,
    review_payload,
    spelled_time,
    status_of,
)
from sk_agents.wire.events import CostView, EventType, TableView, UsageView, cut_reason
from sk_agents.wire.views import (
    ApprovalView,
    BranchView,
    ChatSummary,
    DecisionView,
    ErrorView,
    FeedbackView,
    GrantView,
    InteractionView,
    ItemView,
    SharedTurn,
)

RETRY_MS = 1000
# The label of a thread whose chat is listed first.
PINNED = "pinned"
# Each tag of a chat is a label of its own, so that every store can look for it.
_TAG = "tag:"
# How many turns of a shared conversation those who decide about a call see: the last ones.
SHARED_TURNS = 20

Payload = dict[str, Any]
Named = tuple[str, Payload]
"""The name of a frame and what it says."""

_DELTAS = {"answer": "answer_delta", "thinking": "thinking_delta"}


EVENT_ID_PATTERN = "[0-9]+-[0-9a-f]{8}"


def event_id(event: Event) -> str:
    """The event's place in the log and a checksum of what tells this event from any other.

    The place alone is not enough: after a backup was restored, or the chat was deleted and made
    again, another event stands there, and a reader that went on behind it would miss what came in
    between. The checksum is computed from the event, so it is the same at every instance.
    """
    return f"{event.seq}-{event_tag(event)}"


def event_tag(event: Event) -> str:
    named = f"{event.run_id}\n{event.type}\n{event.at.isoformat()}"
    return f"{zlib.crc32(named.encode()):08x}"


def stream_end(reason: str, resume_url: str) -> bytes:
    """The frame that closes a stream early. It never claims that the run is over."""
    payload = orjson.dumps({"reason": reason, "resume_url": resume_url})
    return last_frame("stream_end", payload, retry_ms=RETRY_MS)


class ChatRenderer:
    """The frames of one stream.

    The events of a call name its tool only once, so a stream that begins in the middle of a run
    lets the renderer `learn` what came before. With `whole_chat` every frame names its interaction,
    its time and what was used, and the chat's own changes show too.
    """

    def __init__(self, chat_id: str, *, whole_chat: bool = False) -> None:
        self._chat_id = chat_id
        self._whole_chat = whole_chat
        self._names: dict[str, str] = {}
        self._arguments: dict[str, dict[str, Any]] = {}
        self._shown: set[str] = set()
        self._approvals: dict[str, Approval] = {}
        # What the round used that proposed this call, until a frame has said it.
        self._used: dict[str, Usage] = {}

    def learn(self, events: Sequence[Event]) -> None:
        """Take what the reader has seen already."""
        self.frames(events)

    def frames(self, items: Sequence[WatchedItem]) -> list[bytes]:
        found = []
        for item in items:
            if isinstance(item, LiveDelta):
                found.append(_delta(item))
                continue
            render = _RENDERED.get(type(item))
            named = render(self, item) if render is not None else None
            if named is not None:
                name, payload = named
                if self._whole_chat:
                    payload = self._placed(item, payload)
                found.append(frame(name, orjson.dumps(payload), id=event_id(item)))
        return found

    def _placed(self, event: Event, payload: Payload) -> Payload:
        """With what only a chat's own stream says: the fields that `wire` marks `InChat`."""
        payload["at"] = spelled_time(event.at)
        if event.run_id:
            payload.setdefault("interaction_id", event.run_id)
        if isinstance(event, RunStarted | RunQueued):
            payload["user_message"] = event.message.text if event.message else None
            payload["agent"] = event.agent
        if isinstance(event, RunStarted):
            payload |= {"parent_id": event.parent_run, "edits": event.edits}
        if (usage := self._used_by(event)) is not None:
            payload["usage"] = usage_payload(usage)
            if usage.cost is not None:
                payload["cost"] = cost_payload(usage.cost)
        return payload

    def _used_by(self, event: Event) -> Usage | None:
        """What the model's round used, with the first frame that comes of it; else the tool."""
        match event:
            case Answered():
                return event.usage
            case ToolProposed() | ToolStarted() | ApprovalRequested():
                return self._used.pop(event.call_id, None)
            case ToolFinished():
                return self._used.pop(event.call_id, None) or event.usage
            case _:
                return None

    def _queued(self, event: RunQueued) -> Named:
        return "interaction_queued", {"interaction_id": event.run_id, "position": event.position}

    def _started(self, event: RunStarted) -> Named:
        return "interaction_started", {
            "interaction_id": event.run_id,
            "chat_id": self._chat_id,
            "status": "RUNNING",
            "created_at": spelled_time(event.at),
        }

    def _thinking(self, event: Thinking) -> Named:
        payload: Payload = {"type": EventType.THINKING, "content": event.content}
        if event.spoken:
            payload["spoken"] = True
        return "thinking", payload

    def _proposed(self, event: ToolProposed) -> Named | None:
        self._names[event.call_id] = _name(event)
        self._arguments[event.call_id] = event.arguments
        if event.usage is not None:
            self._used[event.call_id] = event.usage
        return self._call(event.call_id) if event.problem is not None else None

    def _tool_started(self, event: ToolStarted) -> Named:
        name, payload = self._call(event.call_id)
        if event.grant_id is not None:
            payload["grant_id"] = event.grant_id
        return name, payload

    def _call(self, call_id: str) -> Named:
        self._shown.add(call_id)
        return "tool_call", {
            "type": EventType.TOOL_CALL,
            "id": call_id,
            "tool_name": self._names[call_id],
            "tool_input": spelled(self._arguments[call_id]),
        }

    def _finished(self, event: ToolFinished) -> Named | None:
        """A call that was not allowed to run has no result to show. A person's refusal has been
        shown as such; a policy's is shown here."""
        name = self._names[event.call_id]
        if event.call_id in self._shown:
            result: Payload = {
                "type": EventType.TOOL_RESULT,
                "id": event.call_id,
                "tool_name": name,
                "tool_output": event.result,
            }
            if views := attachment_views(event.attachments):
                result["attachments"] = [view.model_dump() for view in views]
            return "tool_result", result
        if event.outcome == "refused" and event.by == "policy":
            return "rejected", {
                "approval_id": None,
                "interaction_id": event.run_id,
                "call_id": event.call_id,
                "tool_name": name,
                "by": "policy",
                "decided_by": None,
                "message": event.result,
            }
        return None

    def _asked(self, event: ApprovalRequested) -> Named:
        if event.kind == "tool":
            # What is asked about is what will run: an edit of what was asked before is void.
            self._arguments[event.call_id] = event.shown.get("arguments", {})
        approval = Approval(event)
        if event.review is not None:
            self._approvals[event.approval_id] = approval
        return "approval_required", {
            "approval_id": event.approval_id,
            "interaction_id": event.run_id,
            **approval_payload(approval),
        }

    def _voted(self, event: VoteCast) -> Named:
        payload = self._voting(event)
        payload |= {
            "voter": event.voter,
            "voter_name": event.voter_name,
            "approved": event.approved,
        }
        if event.message is not None:
            payload["message"] = event.message
        return "vote_cast", payload

    def _vote_withdrawn(self, event: VoteWithdrawn) -> Named:
        return "vote_withdrawn", self._voting(event) | {
            "voter": event.voter,
            "voter_name": event.voter_name,
        }

    def _extended(self, event: ReviewExtended) -> Named:
        return "review_extended", self._voting(event) | {
            "audience": audience_payload(event.audience),
            "expires_at": spelled_time(event.expires_at) if event.expires_at else None,
        }

    def _voting(self, event: VoteCast | VoteWithdrawn | ReviewExtended) -> Payload:
        approval = self._approvals[event.approval_id]
        approval.take(event)
        return {
            "approval_id": event.approval_id,
            "interaction_id": event.run_id,
            "call_id": event.call_id,
            "tool_name": self._names[event.call_id],
            "missing": approval.missing,
        }

    def _decided(self, event: ApprovalDecided) -> Named:
        self._approvals.pop(event.approval_id, None)
        if event.edited_arguments is not None:
            self._arguments[event.call_id] = event.edited_arguments
        payload = {
            "approval_id": event.approval_id,
            "interaction_id": event.run_id,
            "call_id": event.call_id,
            "tool_name": self._names[event.call_id],
            "by": event.by,
            "decided_by": event.decided_by,
        }
        optional = ("decided_by_name", "message", "edited_arguments", "choice", "answer")
        payload |= {key: value for key in optional if (value := getattr(event, key)) is not None}
        return "approved" if event.outcome == "approved" else "rejected", payload

    def _steered(self, event: Steered) -> Named:
        return "steered", {
            "interaction_id": event.run_id,
            "message_id": event.message_id,
            "content": event.content,
        }

    def _delivered(self, event: SteeringDelivered) -> Named:
        return "steering_delivered", {
            "interaction_id": event.run_id,
            "message_ids": event.message_ids,
        }

    def _stopping(self, event: CancelRequested) -> Named | None:
        """A stop at once has no frame: what it ends follows."""
        return ("stopping", {"interaction_id": event.run_id}) if event.after == "step" else None

    def _cancelled(self, event: Cancelled) -> Named:
        return "cancelled", {"interaction_id": event.run_id}

    def _failed(self, event: Failed) -> Named:
        return "error", {
            "interaction_id": event.run_id,
            "code": event.code,
            "message": event.message,
            "correlation_id": event.correlation_id,
        }

    def _answered(self, event: Answered) -> Named:
        payload: Payload = {"type": EventType.ANSWER, "content": event.content}
        if (reason := cut_reason(event.finish_reason)) is not None:
            payload["finish_reason"] = reason
        return "answer", payload

    def _ended(self, event: RunEnded) -> Named:
        payload = {
            "interaction_id": event.run_id,
            "status": event.status.upper(),
            "usage": usage_payload(event.usage),
        }
        if event.usage.cost is not None:
            payload["cost"] = cost_payload(event.usage.cost)
        return "interaction_complete", payload

    def _branched(self, event: BranchChanged) -> Named | None:
        if not self._whole_chat:
            return None
        return "branch_changed", {"interaction_id": event.head_run}

    def _relabelled(self, event: ThreadChanged) -> Named | None:
        if not self._whole_chat or "title" not in event.metadata:
            return None
        return "chat_changed", {"title": event.metadata["title"]}

    def _rated(self, event: Rated) -> Named | None:
        if not self._whole_chat:
            return None
        payload: Payload = {"interaction_id": event.run_id, "rating": event.rating}
        return "feedback_given", payload if event.note is None else payload | {"note": event.note}


_RENDERED: Mapping[type[Event], Callable[[ChatRenderer, Any], Named | None]] = {
    RunQueued: ChatRenderer._queued,
    RunStarted: ChatRenderer._started,
    Thinking: ChatRenderer._thinking,
    ToolProposed: ChatRenderer._proposed,
    ToolStarted: ChatRenderer._tool_started,
    ToolFinished: ChatRenderer._finished,
    ApprovalRequested: ChatRenderer._asked,
    VoteCast: ChatRenderer._voted,
    VoteWithdrawn: ChatRenderer._vote_withdrawn,
    ReviewExtended: ChatRenderer._extended,
    ApprovalDecided: ChatRenderer._decided,
    Steered: ChatRenderer._steered,
    SteeringDelivered: ChatRenderer._delivered,
    CancelRequested: ChatRenderer._stopping,
    Cancelled: ChatRenderer._cancelled,
    Failed: ChatRenderer._failed,
    Answered: ChatRenderer._answered,
    RunEnded: ChatRenderer._ended,
    BranchChanged: ChatRenderer._branched,
    ThreadChanged: ChatRenderer._relabelled,
    Rated: ChatRenderer._rated,
}


def approval_payload(approval: Approval) -> Payload:
    """What a person must see to decide: exactly what will run, but for secrets, and who
    decides."""
    event = approval.request
    payload: Payload = {
        "kind": event.kind,
        "call_id": event.call_id,
        "tool_name": str(event.shown.get("tool_name", "")),
        "tool_input": spelled(event.shown.get("arguments", {})),
        "digest": event.digest,
        "expires_at": spelled_time(approval.expires_at) if approval.expires_at else None,
    }
    if event.choices is not None:
        payload["choices"] = event.choices
    if event.answer_schema is not None:
        payload["schema"] = event.answer_schema
    if (preview := event.shown.get("preview")) is not None:
        payload["preview"] = str(preview)
    if (table := _table(event.shown.get(TABLE))) is not None:
        payload[TABLE] = table
    if str(picture := event.shown.get(PICTURE)).startswith("data:image/"):
        payload[PICTURE] = picture
    if event.shown.get("redacted"):
        payload["redacted"] = True
    if event.kind == "tool" and event.review is not None and event.review.reason_required:
        payload["reason_required"] = True
    if approval.audience.keys:
        payload["review"] = review_payload(approval)
    if (budget := event.shown.get("budget")) is not None:
        payload["budget"] = str(budget)
    if (place := event.shown.get(SIGN_IN)) is not None:
        payload["sign_in"] = str(place)
    return payload


def _table(shown: Any) -> Payload | None:
    """Of a log that was imported, it may be anything."""
    try:
        return TableView.model_validate(shown).model_dump() if shown is not None else None
    except ValidationError:
        return None


def usage_payload(usage: Usage) -> Payload:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }


def cost_payload(cost: Cost) -> Payload:
    return {"amount": cost.amount, "currency": cost.currency}


def spelled(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _delta(delta: LiveDelta) -> bytes:
    if delta.kind == "tool_output":
        payload: Payload = {
            "interaction_id": delta.run_id,
            "call_id": delta.call_id,
            "offset": delta.offset,
            "chunk": delta.content,
        }
        return frame("tool_output", orjson.dumps(payload))
    payload = {
        "interaction_id": delta.run_id,
        "round": delta.round,
        "attempt": delta.attempt,
        "offset": delta.offset,
        "content": delta.content,
    }
    return frame(_DELTAS[delta.kind], orjson.dumps(payload))


def _name(proposal: ToolProposed) -> str:
    plugin = proposal.plugin_name
    return f"{plugin}-{proposal.function_name}" if plugin else proposal.function_name


def chat_summary(thread: Thread) -> ChatSummary:
    return ChatSummary(
        id=thread.wire_id,
        title=str(thread.metadata.get("title", "")),
        agent=thread.agent,
        status=_status(thread.status),
        created_at=spelled_time(thread.created_at),
        updated_at=spelled_time(thread.updated_at),
        pinned=thread.metadata.get(PINNED) is True,
        place=thread.metadata.get(PLACE) or "list",
        tags=tags_of(thread.metadata),
    )


def tag_label(tag: str) -> str:
    """The label of a thread that says that its chat has this tag."""
    return f"{_TAG}{tag}"


def tags_of(labels: Mapping[str, Any]) -> tuple[str, ...]:
    found = (name.removeprefix(_TAG) for name in labels if name.startswith(_TAG))
    return tuple(sorted(found))


def interaction_view(
    thread: Thread, state: ThreadState, run: Run, *, visible: bool, with_state: bool = True
) -> InteractionView:
    plain = interaction_of(state, run.run_id, with_state=with_state)
    failure = run.failure
    return InteractionView(
        **dict(plain),
        agent=run.agent or thread.agent,
        items=tuple(_items(run.message)) if run.message else (),
        superseded=not visible,
        usage=UsageView(**usage_payload(run.usage)),
        cost=CostView(**cost_payload(run.usage.cost)) if run.usage.cost else None,
        error=ErrorView(
            code=failure.code, message=failure.message, correlation_id=failure.correlation_id
        )
        if failure
        else None,
        partial=run.cancelled.partial if run.cancelled else None,
        approvals=tuple(
            _approval(thread, run, call, call.approval)
            for call in run.calls.values()
            if call.approval is not None and call.waits
        ),
        stopping=run.stop_requested is not None and run.phase not in TERMINAL,
        feedback=feedback_view(run.rated) if run.rated else None,
    )


def feedback_view(rated: Rated) -> FeedbackView:
    """Of a rating that was not taken back."""
    assert rated.rating is not None
    return FeedbackView(rating=rated.rating, note=rated.note, at=spelled_time(rated.at))


def asked_view(asked: Asked, caller: Caller) -> ApprovalView:
    view = _approval(asked.thread, asked.run, asked.call, asked.approval)
    if view.review is None:
        return view
    vote = asked.approval.votes.get(caller.user_id)
    update: dict[str, Any] = {
        "may_decide": _may_decide(asked, caller),
        "my_vote": vote.approved if vote is not None else None,
    }
    if caller.user_id != asked.thread.user_id:
        update |= {"chat_id": "", "chat_title": ""}
    return view.model_copy(update=update)


def shared_view(asked: Asked, state: ThreadState, caller: Caller) -> ApprovalView:
    """The same with the conversation, if the rule lets those who decide read it."""
    view = asked_view(asked, caller)
    if view.review is None or not view.review.share_conversation:
        return view
    runs = state.path(asked.run.run_id)[-SHARED_TURNS:]
    shared = [turn for run in runs for turn in _shared_turns(run)]
    return view.model_copy(update={"conversation": tuple(shared[-SHARED_TURNS:])})


def _shared_turns(run: Run) -> Iterator[SharedTurn]:
    """What the model was told while it worked is a turn of its own: it may have led to the call."""
    message, answers = run.message.text if run.message else "", list(_spoken(run))
    for steering in run.delivered:
        assert steering.delivery is not None
        number = steering.delivery.round
        before = [text for round, text in answers if round < number]
        answers = answers[len(before) :]
        yield SharedTurn(user_message=message, answer="\n\n".join(before) or None)
        message = steering.said.content
    rest = [text for _, text in answers]
    yield SharedTurn(user_message=message, answer="\n\n".join(rest) or None)


def _spoken(run: Run) -> Iterator[tuple[int, str]]:
    """What the agent has said to the user, each with its round of the model."""
    for thought in run.thoughts:
        if thought.spoken:
            yield thought.round, thought.content
    if run.last_words:
        yield run.next_round, run.last_words


def _may_decide(asked: Asked, caller: Caller) -> bool:
    if asked.approval.state is not ApprovalState.PENDING:
        return False
    owner = asked.thread.user_id
    try:
        right_to_vote(asked.approval, owner, caller.user_id, caller.memberships)
    except TealError:
        return False
    return True


def decision_view(decision: ApprovalDecided) -> DecisionView:
    return DecisionView(
        approved=decision.outcome == "approved",
        by=decision.by,
        decided_by=decision.decided_by,
        decided_by_name=decision.decided_by_name,
        decided_at=spelled_time(decision.at),
        message=decision.message,
        edited_arguments=decision.edited_arguments,
        choice=decision.choice,
    )


def grant_view(granted: Granted) -> GrantView:
    grant = granted.grant
    return GrantView(
        grant_id=grant.grant_id,
        chat_id=granted.thread.wire_id,
        tool=grant.tool,
        scope=grant.scope,
        granted_at=spelled_time(grant.at),
        granted_by=grant.changed_by,
        chat_title=str(granted.thread.metadata.get("title", "")),
    )


def branch_views(state: ThreadState) -> Iterator[BranchView]:
    """Every interaction as a node of the conversation's tree, oldest first."""
    visible = {run.run_id for run in state.branch()}
    for run in list(state.runs.values()):
        yield BranchView(
            interaction_id=run.run_id,
            parent_id=run.parent_run,
            edits=run.edits,
            status=status_of(run),
            user_message=run.message.text if run.message else "",
            created_at=spelled_time(run.created_at),
            visible=run.run_id in visible,
        )


def _approval(thread: Thread, run: Run, call: Call, approval: Approval) -> ApprovalView:
    request = approval.request
    return ApprovalView(
        approval_id=request.approval_id,
        chat_id=thread.wire_id,
        interaction_id=run.run_id,
        agent=run.agent or thread.agent,
        state=approval.state,
        requested_at=spelled_time(request.at),
        requested_by=run.user_name or thread.user_id,
        chat_title=str(thread.metadata.get("title", "")),
        late_result=call.late_result,
        decision=decision_view(approval.decision) if approval.decision else None,
        **approval_payload(approval),
    )


def _items(message: UserInput) -> Iterator[ItemView]:
    for part in message.parts[1:]:
        # Of a part of a very long chat: it was sent before that part begins.
        item = _item(part)
        if not item.content.startswith(BLOB):
            yield item


def _item(part: Part) -> ItemView:
    if part.original is not None:
        return ItemView(content_type="pdf", content=part.original.uri, name=part.name)
    kind: Literal["text", "image"] = "image" if part.kind == "image" else "text"
    return ItemView(content_type=kind, content=part.content, name=part.name)


def _status(status: str) -> str:
    """A chat's status in the words of its interactions; a new one is idle."""
    return "WAITING_APPROVAL" if status == "waiting" else status.upper()
