"""The models of Teal's stateful API: what a client sends and what it gets.

A session groups tasks, a task is one conversation, a request is one invocation within it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from sk_agents.engine.commands import OnBusy
from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.values import dataclass
from sk_agents.ska_types import (
    AgentTask,
    AgentTaskItem,
    ExtraData,
    Moment,
    MultiModalItem,
    TaskStatus,
    TokenUsage,
)
from sk_agents.wire.images import checked_image

__all__ = [
    "AgentTask",
    "AgentTaskItem",
    "CallDecision",
    "HitlResponse",
    "MultiModalItem",
    "RejectedToolResponse",
    "Request",
    "RequestFailure",
    "RequestIds",
    "ResumeRequest",
    "Session",
    "StateIds",
    "StateResponse",
    "TaskSummary",
    "TealAgentsPartialResponse",
    "TealAgentsResponse",
    "TokenUsage",
    "ToolCallContent",
    "UserMessage",
]

MAX_ITEMS = 32
MAX_DECISIONS = 256
MAX_MESSAGE = 10_000

# One spelling of one id: `uuid.UUID` also takes braces, prefixes, capitals and other digits.
MAX_METADATA = 16 * 1024
UUID_PATTERN = r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
Id = Annotated[str, Field(pattern=UUID_PATTERN), AfterValidator(str.lower)]
Action = Literal["approve", "reject"]
NO_TOKENS = TokenUsage(completion_tokens=0, prompt_tokens=0, total_tokens=0)


@dataclass(frozen=True, slots=True)
class StateIds:
    """The ids of a request as they are passed around."""

    session_id: str
    task_id: str
    request_id: str

    def fields(self) -> dict[str, str]:
        return {
            "session_id": self.session_id,
            "task_id": self.task_id,
            "request_id": self.request_id,
        }


class Incoming(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, defer_build=True)


class UserMessage(Incoming):
    """The user's new message. The server keeps the earlier ones."""

    session_id: Id | None = None
    task_id: Id | None = None
    items: list[MultiModalItem] = Field(min_length=1, max_length=MAX_ITEMS)
    user_context: dict[str, str] | None = None
    on_busy: OnBusy = "reject"
    metadata: dict[str, Any] | None = Field(
        None,
        description="What the client wants to find with the task. With a task that is there, these "
        "keys are changed; `null` removes one.",
    )
    expires_at: Moment | None = Field(
        None, description="When a new task expires: from then on it takes no message."
    )

    @field_validator("metadata")
    @classmethod
    def _metadata_is_small(cls, metadata: dict[str, Any] | None) -> dict[str, Any] | None:
        if metadata is not None and len(canonical_json(metadata)) > MAX_METADATA:
            raise ValueError(f"is limited to {MAX_METADATA} bytes of JSON")
        return metadata

    @model_validator(mode="after")
    def _items_are_usable(self) -> Self:
        if not any(item.content.strip() for item in self.items):
            raise ValueError("items: at least one must have content")
        for number, item in enumerate(self.items):
            if item.content_type == "image":
                try:
                    checked_image(item.content)
                except ValueError as error:
                    raise ValueError(f"items[{number}].content {error}") from None
        return self


class CallDecision(Incoming):
    """The decision about one waiting call. `choice` and `answer` are for calls that ask."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    tool_call_id: str = Field(min_length=1, max_length=200)
    action: Action
    message: str | None = Field(None, max_length=MAX_MESSAGE)
    edited_arguments: dict[str, Any] | None = None
    choice: Literal["done", "retry", "give_up"] | None = None
    answer: Any = None

    @model_validator(mode="after")
    def _only_an_approved_call_is_edited(self) -> Self:
        if self.action == "reject" and self.edited_arguments is not None:
            raise ValueError("edited_arguments: a rejected call has none")
        return self


class ResumeRequest(Incoming):
    """One action for all calls that wait now, or a decision for each of those named."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    action: Action | None = None
    decisions: list[CallDecision] | None = Field(None, min_length=1, max_length=MAX_DECISIONS)
    pause: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _names_each_call_once(self) -> Self:
        named = [decision.tool_call_id for decision in self.decisions or ()]
        if len(set(named)) < len(named):
            raise ValueError("decisions: a tool call is named twice")
        return self

    @property
    def is_complete(self) -> bool:
        """Has either an action or decisions."""
        return (self.action is None) is not (self.decisions is None)


class Outgoing(BaseModel):
    """Its validator is built at first use, which makes a start shorter."""

    model_config = ConfigDict(defer_build=True)


class RequestIds(Outgoing):
    """The three ids that every reply and every event carries."""

    session_id: str
    task_id: str
    request_id: str


class TealAgentsResponse(RequestIds):
    """A finished request's answer."""

    output: str
    source: str | None = None
    token_usage: TokenUsage = NO_TOKENS
    extra_data: ExtraData | None = None


class TealAgentsPartialResponse(RequestIds):
    """A piece of an answer as it appears."""

    output_partial: str
    source: str | None = None


class ToolCallContent(Outgoing):
    """A call that waits, exactly as it would run; `arguments` is JSON."""

    id: str
    name: str
    function_name: str
    plugin_name: str
    arguments: str
    content_type: Literal["function_call"] = "function_call"
    approval_id: str
    digest: str
    kind: str = "tool"
    choices: list[str] | None = None
    review: dict[str, Any] | None = Field(
        None,
        description="Who decides instead of the requester, the votes so far, and how many are "
        "missing.",
        exclude_if=lambda value: value is None,
    )


class HitlResponse(RequestIds):
    """A request that waits for a person. Both addresses take a POST, with or without a body."""

    message: str = "Human intervention required."
    approval_url: str
    rejection_url: str
    tool_calls: list[ToolCallContent]


class RejectedToolResponse(RequestIds):
    """A request that ended because a person said no."""

    message: str = "Tool execution rejected."


class RequestFailure(RequestIds):
    """A request that could not go on; `correlation_id` finds it in the logs."""

    error: str
    code: str
    correlation_id: str | None = None


Content = TealAgentsResponse | HitlResponse | RejectedToolResponse | RequestFailure


class StateResponse(RequestIds):
    """Every reply to a request. The fields of `content` are repeated beside it."""

    model_config = ConfigDict(extra="allow")

    status: TaskStatus
    content: Content | None = None


class TraceStep(Outgoing):
    """One step of a request: what the model thought, a call and its result, a decision, the end.

    `content` is the text of a thought, a result, an answer or a failure; `outcome` is what came of
    a call, a decision or the request."""

    kind: Literal["thinking", "tool_call", "tool_result", "approval", "decision", "answer", "end"]
    request_id: str
    at: Moment
    call_id: str | None = None
    tool_name: str | None = None
    arguments: dict[str, Any] | None = None
    content: str | None = None
    outcome: str | None = None


class Request(StateResponse):
    """One invocation of a task, at any time."""

    created_at: Moment
    completed_at: Moment | None = None
    trace: list[TraceStep] = Field(default_factory=list)


class Task(AgentTask):
    """A task with the steps of all its requests."""

    trace: list[TraceStep] = Field(default_factory=list)


class TaskSummary(Outgoing):
    task_id: str
    status: TaskStatus
    created_at: Moment
    last_updated_at: Moment


class Session(Outgoing):
    """A user's tasks under one session id, the last changed first; `next` continues the list."""

    session_id: str
    user_id: str
    tasks: list[TaskSummary]
    next: str | None = None
