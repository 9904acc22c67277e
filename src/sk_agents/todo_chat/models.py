"""What `POST /chat` takes and answers, and the reply made of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sk_agents.engine.calls.call import Approval, Call
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import RunStatus

MAX_TEXT_BYTES = 256 * 1024


def _checked_message(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    # A code point has at most four bytes, so most texts need no encoding to be counted.
    if len(text) * 4 > MAX_TEXT_BYTES and len(text.encode()) > MAX_TEXT_BYTES:
        raise ValueError(f"must have at most {MAX_TEXT_BYTES} bytes")
    return text


class TodoChatRequest(BaseModel):
    """`session_id` is a chat's id; without one a new conversation begins."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )

    user_message: Annotated[str, AfterValidator(_checked_message)]
    session_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    user_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    on_busy: Literal["reject", "enqueue", "interrupt"] = "reject"


class ChatToolCall(BaseModel):
    """A tool call; `result` is `None` while it has none."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    name: str
    arguments: dict[str, Any]
    result: str | None


class WaitingApproval(BaseModel):
    """A call or a question that waits for a person: decide it at `/approvals/{approval_id}`."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    approval_id: str
    kind: Literal["tool", "outcome_unknown", "question", "auth"]
    tool_name: str
    arguments: dict[str, Any]
    digest: str
    expires_at: str | None
    choices: tuple[str, ...] | None = None
    answer_schema: dict[str, Any] | None = Field(None, serialization_alias="schema")


class ChatReply(BaseModel):
    """`response` is the assistant's message, empty while the turn is paused."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    session_id: str
    request_id: str
    response: str
    tool_calls: list[ChatToolCall]
    status: Literal["Completed", "Paused", "Canceled"]
    approvals: list[WaitingApproval] = []


_STATUSES: Mapping[RunStatus, Literal["Paused", "Canceled"]] = {
    RunStatus.WAITING: "Paused",
    RunStatus.CANCELLED: "Canceled",
}


def reply_of(session_id: str, run: Run) -> ChatReply:
    """Of a run that has ended without failing, or waits for a person."""
    waiting = [call.approval for call in run.calls.values() if call.approval and call.waits]
    is_paused = run.status is RunStatus.WAITING
    return ChatReply(
        session_id=session_id,
        request_id=run.run_id,
        response=run.answer.content if run.answer is not None else "",
        tool_calls=[_call(call) for call in run.calls.values()],
        status=_STATUSES.get(run.status, "Completed"),
        approvals=[_approval(approval) for approval in waiting] if is_paused else [],
    )


def _call(call: Call) -> ChatToolCall:
    made = call.wanted
    result = call.finished.result if call.finished is not None else None
    return ChatToolCall(name=made.name, arguments=made.arguments, result=result)


def _approval(approval: Approval) -> WaitingApproval:
    request = approval.request
    return WaitingApproval(
        approval_id=request.approval_id,
        kind=request.kind,
        tool_name=str(request.shown.get("tool_name", "")),
        arguments=request.shown.get("arguments", {}),
        digest=request.digest,
        expires_at=request.expires_at.isoformat() if request.expires_at else None,
        choices=request.choices,
        answer_schema=request.answer_schema,
    )
