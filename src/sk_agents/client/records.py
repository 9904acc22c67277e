"""What a server keeps, as it answers when asked: chats, branches, approvals, grants, agents."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from sk_agents.client.errors import ProtocolError
from sk_agents.client.events import (
    Answer,
    ApprovalKind,
    Cost,
    Received,
    Status,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)

AgentEvent = Annotated[ToolCall | ToolResult | Thinking | Answer, Field(discriminator="type")]


class PendingApproval(Received):
    """A call that waits for a person, wherever it was made."""

    approval_id: str
    chat_id: str
    interaction_id: str
    agent: str | None = None
    kind: ApprovalKind = "tool"
    state: str = "pending"
    call_id: str
    tool_name: str
    tool_input: str = ""
    digest: str = ""
    requested_at: str = ""
    expires_at: str | None = None
    choices: tuple[str, ...] | None = None
    answer_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    late_result: str | None = None
    preview: str | None = None


class Failure(Received):
    """Why an interaction failed."""

    code: str
    message: str = ""
    correlation_id: str | None = None


class Interaction(Received):
    """One message and everything the agent did about it."""

    id: str
    status: Status
    user_message: str
    agent_events: tuple[AgentEvent, ...] = ()
    final_agent_state: dict[str, Any] | None = None
    """Everything said up to its end, as a model is sent it; only if it was asked for."""
    created_at: str
    completed_at: str | None = None
    agent: str | None = None
    parent_id: str | None = None
    edits: str | None = None
    """The interaction it was made from by an edit."""
    superseded: bool = False
    usage: Usage | None = None
    cost: Cost | None = None
    error: Failure | None = None
    approvals: tuple[PendingApproval, ...] = ()

    @property
    def answer(self) -> str | None:
        """What the agent answered; `None` if it did not come to that."""
        said = [event.content for event in self.agent_events if isinstance(event, Answer)]
        return said[-1] if said else None


class History(Received):
    """A chat as it stands. If it is so long that only its newest part is here, `next` says what to
    ask for the part `before` it."""

    id: str
    interactions: tuple[Interaction, ...]
    created_at: str
    title: str | None = None
    agent: str | None = None
    status: str | None = None
    updated_at: str = ""
    last_seq: int | None = None
    last_event_id: str | None = None
    next: str | None = None


class ChatSummary(Received):
    id: str
    title: str | None = None
    agent: str | None = None
    status: str | None = None
    created_at: str = ""
    updated_at: str = ""


class Branch(Received):
    """An interaction in the tree of a chat; `edits` names the one it was made from."""

    interaction_id: str
    parent_id: str | None = None
    edits: str | None = None
    status: str
    user_message: str = ""
    created_at: str = ""
    visible: bool


class Branches(Received):
    """`head` is the tip of the branch that is shown."""

    head: str | None = None
    branches: tuple[Branch, ...]


class Decided(Received):
    """The server's receipt for a decision."""

    status: str
    approval_id: str
    approved: bool


class Grant(Received):
    """A standing approval for a tool."""

    grant_id: str
    chat_id: str
    tool: str
    scope: Literal["run", "thread"]
    granted_at: str = ""
    granted_by: str | None = None


class AgentInfo(Received):
    name: str
    description: str | None = None
    model: str | None = None
    tools: tuple[Any, ...] = ()


Record = TypeVar("Record", bound=Received)


def record_of(kind: type[Record], document: Any) -> Record:
    """The document as a record.

    Raises:
        ProtocolError: it does not fit.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise ProtocolError(f"the server sent an unusable {kind.__name__}") from error
