"""From a request's progress and a thread's events to this API's models, and to bytes. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Literal
from urllib.parse import urlencode

import orjson
from pydantic import BaseModel

from sk_agents.engine.calls.call import Approval, Call
from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    Event,
    Failed,
    Imported,
    RunEnded,
    RunQueued,
    RunStarted,
    Steered,
    SteeringDelivered,
    Thinking,
    ToolFinished,
    ToolProposed,
)
from sk_agents.engine.models import RunStatus, Thread, ThreadStatus, UserInput
from sk_agents.exceptions import TealError
from sk_agents.http.sse import frame
from sk_agents.interactions import review_payload
from sk_agents.ska_types import (
    AgentTaskItem,
    ContentType,
    ExtraData,
    ExtraDataElement,
    MultiModalItem,
    TaskStatus,
)
from sk_agents.tealagents.models import (
    Content,
    HitlResponse,
    RejectedToolResponse,
    RequestFailure,
    StateIds,
    Task,
    TaskSummary,
    TealAgentsPartialResponse,
    TealAgentsResponse,
    ToolCallContent,
    TraceStep,
)
from sk_agents.tealagents.v1alpha1.agent import Piece, Progress
from sk_agents.tealagents.v1alpha1.config import ServedTealAgent

# The key of a thread's metadata for tasks that were made through the four-method interface.
LABEL = "task"
STATUSES: dict[RunStatus, TaskStatus] = {
    RunStatus.QUEUED: "Running",
    RunStatus.RUNNING: "Running",
    RunStatus.WAITING: "Paused",
    RunStatus.COMPLETED: "Completed",
    RunStatus.FAILED: "Failed",
    RunStatus.CANCELLED: "Canceled",
}
TASK_STATUSES: dict[ThreadStatus, TaskStatus] = {
    ThreadStatus.IDLE: "Running",
    ThreadStatus.RUNNING: "Running",
    ThreadStatus.WAITING: "Paused",
    ThreadStatus.COMPLETED: "Completed",
    ThreadStatus.FAILED: "Failed",
    ThreadStatus.CANCELLED: "Canceled",
}
CANCELED = "The request was canceled."
UNKNOWN_FAILURE = "The request could not go on."


class RequestRenderer:
    def __init__(self, served: ServedTealAgent, ids: StateIds, root: str = "") -> None:
        self._served = served
        self._ids = ids
        self._root = root

    def content(self, progress: Progress) -> Content | None:
        """The answer, the question or the failure; `None` while it runs."""
        text = _answer_text(progress)
        if text is not None:
            return TealAgentsResponse(**self._answer(progress, text))
        match progress.status:
            case RunStatus.WAITING:
                return self._question(progress)
            case RunStatus.FAILED:
                return self._failure(progress)
            case RunStatus.CANCELLED:
                return RejectedToolResponse(**self._ids.fields())
        return None

    @cached_property
    def _opening(self) -> bytes:
        """Every piece of an answer starts with the same bytes."""
        known = orjson.dumps({**self._ids.fields(), "source": self._served.config.source})
        return known[:-1] + b',"output_partial":'

    def state(self, progress: Progress) -> dict[str, Any]:
        """The envelope, with the fields of its content repeated beside it."""
        content = self._fields(progress)
        envelope = {
            **self._ids.fields(),
            "status": STATUSES[progress.status],
            "content": content,
        }
        # Its ids are the same.
        return {**envelope, **content} if content is not None else envelope

    def review(self, progress: Progress, concerns: Callable[[Approval], bool]) -> dict[str, Any]:
        """What those who decide about a call may see of the request: its status and their calls,
        never what was said."""
        question = None
        if progress.status is RunStatus.WAITING:
            question = self._question(progress, concerns)
        content = question.model_dump() if question is not None else None
        status = STATUSES[progress.status]
        return {**self._ids.fields(), "status": status, "content": content}

    def _fields(self, progress: Progress) -> dict[str, Any] | None:
        """The content as a dict. An answer's is made without building the model first."""
        text = _answer_text(progress)
        if text is not None:
            return self._answer(progress, text)
        content = self.content(progress)
        return content.model_dump() if content is not None else None

    def outcome(self, progress: Progress) -> Content:
        """The content of a request that has ended, or waits for a person."""
        content = self.content(progress)
        assert content is not None, "a request is followed to its end or its next question"
        return content

    def piece(self, piece: Piece) -> TealAgentsPartialResponse | Content:
        if isinstance(piece, str):
            source = self._served.config.source
            return TealAgentsPartialResponse(
                **self._ids.fields(), source=source, output_partial=piece
            )
        return self._canceled() if _is_cancelled(piece) else self.outcome(piece)

    def frames(self, pieces: Sequence[Piece]) -> list[bytes]:
        return [self._frame(piece) for piece in pieces]

    def error_frame(self, error: TealError, correlation_id: str) -> bytes:
        """Reading the request failed; the request itself may go on."""
        failure = self._failed(str(type(error)()), error.code, correlation_id)
        return frame("error", _json(failure))

    def keepalive(self) -> bytes:
        return frame("keepalive", orjson.dumps(self._ids.fields()))

    def _frame(self, piece: Piece) -> bytes:
        if isinstance(piece, str):
            return frame("partial-response", self._opening + orjson.dumps(piece) + b"}")
        content = self.piece(piece)
        match content:
            case HitlResponse():
                return frame("hitl-response", _json(content))
            case RequestFailure():
                return frame("error", _json(content))
        return frame("final-response", _json(content))

    def _answer(self, progress: Progress, text: str) -> dict[str, Any]:
        """The fields of a `TealAgentsResponse`, all of them."""
        usage = progress.usage
        extra = extra_data(progress.calls.values()) if progress.calls else None
        return {
            "task_id": self._ids.task_id,
            "session_id": self._ids.session_id,
            "request_id": self._ids.request_id,
            "output": text,
            "source": self._served.config.source,
            "token_usage": {
                "completion_tokens": usage.completion_tokens,
                "prompt_tokens": usage.prompt_tokens,
                "total_tokens": usage.total_tokens,
            },
            "extra_data": extra.model_dump() if extra is not None else None,
        }

    def _question(
        self, progress: Progress, concerns: Callable[[Approval], bool] = lambda _: True
    ) -> HitlResponse:
        return HitlResponse(
            **self._ids.fields(),
            approval_url=self._url("approve", progress.pause),
            rejection_url=self._url("reject", progress.pause),
            tool_calls=[
                _shown(call, approval)
                for call, approval in progress.waiting_calls
                if concerns(approval)
            ],
        )

    def _url(self, action: str, pause: int) -> str:
        query: dict[str, str | int] = {"action": action, "pause": pause}
        if self._served.names_task:
            query["task_id"] = self._ids.task_id
        path = f"{self._root}{self._served.config.url}/resume/{self._ids.request_id}"
        return f"{path}?{urlencode(query)}"

    def _failure(self, progress: Progress) -> RequestFailure:
        failure = progress.failure
        if failure is None:
            return self._failed(UNKNOWN_FAILURE, "internal", None)
        return self._failed(failure.message, failure.code, failure.correlation_id)

    def _canceled(self) -> RequestFailure:
        """In a stream a cancelled request is no answer, however much text it had."""
        return self._failed(CANCELED, "canceled", None)

    def _failed(self, text: str, code: str, correlation_id: str | None) -> RequestFailure:
        return RequestFailure(
            **self._ids.fields(), error=text, code=code, correlation_id=correlation_id
        )


def extra_data(calls: Iterable[Call]) -> ExtraData | None:
    """What all tools of a request give its client, in the order of their calls."""
    items: list[ExtraDataElement] = []
    for call in calls:
        given = call.finished.extra_data if call.finished is not None else None
        items.extend(_elements(given or {}))
    return ExtraData(items=items) if items else None


def _elements(given: dict[str, Any]) -> Iterable[ExtraDataElement]:
    listed = given.get("items")
    if isinstance(listed, list):
        pairs = [(item.get("key"), item.get("value")) for item in listed if isinstance(item, dict)]
    else:
        pairs = list(given.items())
    for key, value in pairs:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield ExtraDataElement(key=str(key), value=text)


def _shown(call: Call, approval: Approval) -> ToolCallContent:
    proposal, request = call.proposal, approval.request
    return ToolCallContent(
        id=proposal.call_id,
        name=request.shown["tool_name"],
        function_name=proposal.function_name,
        plugin_name=proposal.plugin_name,
        arguments=json.dumps(request.shown["arguments"], ensure_ascii=False),
        approval_id=request.approval_id,
        digest=request.digest,
        kind=request.kind,
        choices=list(request.choices) if request.choices is not None else None,
        review=review_payload(approval) if approval.audience.keys else None,
    )


def _answer_text(progress: Progress) -> str | None:
    """The answer, or the part of it that there was when the request was cancelled."""
    if progress.status is RunStatus.COMPLETED:
        return progress.answer.content if progress.answer else ""
    if _is_cancelled(progress):
        return (progress.cancelled.partial if progress.cancelled else None) or ""
    return None


def _is_cancelled(progress: Progress) -> bool:
    return progress.status is RunStatus.CANCELLED and not progress.is_rejected


def _json(content: BaseModel) -> bytes:
    return content.model_dump_json().encode()


def summary_of(head: Thread) -> TaskSummary:
    return TaskSummary(
        task_id=head.thread_id,
        status=TASK_STATUSES[head.status],
        created_at=_created_at(head),
        last_updated_at=head.updated_at,
    )


def trace_of(events: Iterable[Event], request_id: str | None = None) -> list[TraceStep]:
    """The steps of all requests, or of this one, in their order."""
    names: dict[str, str | None] = {}
    return [
        TraceStep(request_id=event.run_id, at=event.at, **step)
        for event in events
        if request_id in (None, event.run_id) and (step := _step(event, names)) is not None
    ]


def _step(event: Event, names: dict[str, str | None]) -> dict[str, Any] | None:
    """What an event is in a trace; `names` are the tools of the calls seen so far."""
    match event:
        case Thinking():
            return {"kind": "thinking", "content": event.content}
        case ToolProposed():
            tool = "-".join(part for part in (event.plugin_name, event.function_name) if part)
            names[event.call_id] = tool
            asked = {"arguments": event.arguments, "content": event.problem}
            return {"kind": "tool_call", **_call(event.call_id, names), **asked}
        case ApprovalRequested():
            return {"kind": "approval", **_call(event.call_id, names)}
        case ApprovalDecided():
            said = {"outcome": event.outcome, "content": event.message}
            return {"kind": "decision", **_call(event.call_id, names), **said}
        case ToolFinished():
            done = {"outcome": event.outcome, "content": event.result}
            return {"kind": "tool_result", **_call(event.call_id, names), **done}
        case Answered():
            return {"kind": "answer", "content": event.content}
        case Failed():
            return {"kind": "end", "outcome": "failed", "content": event.message}
        case RunEnded() if event.status is not RunStatus.FAILED:
            return {"kind": "end", "outcome": event.status.value}
    return None


def _call(call_id: str, names: Mapping[str, str | None]) -> dict[str, str | None]:
    return {"call_id": call_id, "tool_name": names.get(call_id)}


def task_of(head: Thread, status: ThreadStatus, events: Sequence[Event]) -> Task:
    """The task; `status` is that of its events: a head shows a pause a moment later."""
    return Task(
        task_id=head.thread_id,
        session_id=head.session_id,
        user_id=head.user_id,
        items=list(_items(head.thread_id, events)),
        created_at=_created_at(head),
        last_updated_at=head.updated_at,
        status=TASK_STATUSES[status],
        metadata=_label(head).get("metadata", {}),
        expires_at=head.expires_at,
        trace=trace_of(events),
    )


def _items(task_id: str, events: Iterable[Event]) -> Iterator[AgentTaskItem]:
    def item(
        role: Literal["user", "assistant"], piece: MultiModalItem, request_id: str, at: datetime
    ) -> AgentTaskItem:
        return AgentTaskItem(
            task_id=task_id, role=role, item=piece, request_id=request_id, updated=at
        )

    queued: dict[str, UserInput] = {}
    said: dict[str, str] = {}
    for event in events:
        match event:
            case RunQueued():
                queued[event.run_id] = event.message
            case RunStarted():
                message = event.message or queued.get(event.run_id)
                for part in message.parts if message is not None else ():
                    kind = ContentType.IMAGE if part.kind == "image" else ContentType.TEXT
                    piece = MultiModalItem(content_type=kind, content=part.content)
                    yield item("user", piece, event.run_id, event.at)
            case Steered():
                said[event.message_id] = event.content
            case SteeringDelivered():
                for message_id in event.message_ids:
                    piece = MultiModalItem(content=said[message_id])
                    yield item("user", piece, event.run_id, event.at)
            case Answered():
                yield item(
                    "assistant", MultiModalItem(content=event.content), event.run_id, event.at
                )
            case Imported():
                for old in event.items:
                    piece = MultiModalItem(
                        content_type=ContentType(old.content_type), content=old.content
                    )
                    yield item(old.role, piece, old.run_id, old.at)


def _created_at(head: Thread) -> datetime:
    given = _label(head).get("created_at")
    return head.created_at if given is None else datetime.fromisoformat(given)


def labelled(head: Thread | None, metadata: dict[str, Any]) -> dict[str, Any]:
    """The thread's metadata with a task's own changed by these; `None` removes a key."""
    label = _label(head) if head is not None else {}
    merged = {**label.get("metadata", {}), **metadata}
    kept = {key: value for key, value in merged.items() if value is not None}
    return {LABEL: {**label, "metadata": kept}}


def _label(head: Thread) -> dict[str, Any]:
    label: dict[str, Any] = head.metadata.get(LABEL, {})
    return label
