"""The words of `POST /chat`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_TEXT_BYTES = 256 * 1024


def _spoken(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    # A code point has at most four bytes, so most texts need no encoding to be counted.
    if len(text) * 4 > MAX_TEXT_BYTES and len(text.encode()) > MAX_TEXT_BYTES:
        raise ValueError(f"must have at most {MAX_TEXT_BYTES} bytes")
    return text


class ChatRequest(BaseModel):
    """A `session_id` is a chat's id; without one a new conversation begins."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True
    )

    user_message: Annotated[str, AfterValidator(_spoken)]
    session_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    user_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    on_busy: Literal["reject", "enqueue", "interrupt"] = "reject"


class CallView(BaseModel):
    """A tool call; `result` is `None` while it has none."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    name: str
    arguments: dict[str, Any]
    result: str | None


class PendingApproval(BaseModel):
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
    tool_calls: list[CallView]
    status: Literal["Completed", "Paused", "Canceled"]
    approvals: list[PendingApproval] = []
