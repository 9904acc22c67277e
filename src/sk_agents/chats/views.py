"""What clients of the chats API are shown, folded from the log: chats, interactions, approvals."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sk_agents.chats.render import approval_payload, cost_payload, usage_payload
from sk_agents.engine.calls.call import Approval, Call
from sk_agents.engine.events import ApprovalDecided
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import Part, Thread
from sk_agents.engine.threads.catalog import Asked, Granted
from sk_agents.interactions import Interaction, InteractionStatus, interaction_of, spelled_time


class View(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)


class UsageView(View):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CostView(View):
    """By the price that the agent's file gave when the model was asked."""

    amount: float
    currency: str


class ErrorView(View):
    code: str
    message: str
    correlation_id: str | None


class ItemView(View):
    content_type: Literal["text", "image"]
    content: str
    name: str | None


class DecisionView(View):
    """How an approval was decided."""

    approved: bool
    by: Literal["human", "policy", "timeout", "cancel", "failure"]
    decided_by: str | None
    decided_at: str
    message: str | None
    edited_arguments: dict[str, Any] | None
    choice: str | None


class ApprovalView(View):
    """An approval and exactly what it is about."""

    approval_id: str
    chat_id: str
    interaction_id: str
    agent: str
    kind: Literal["tool", "outcome_unknown", "question", "auth"]
    state: str
    call_id: str
    tool_name: str
    tool_input: str
    digest: str
    requested_at: str
    expires_at: str | None
    choices: tuple[str, ...] | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    preview: str | None = None
    late_result: str | None = None
    decision: DecisionView | None = None


class InteractionView(Interaction):
    """The seed's interaction, and what a page wants to know beside it."""

    agent: str
    items: list[ItemView]
    parent_id: str | None
    edits: str | None
    superseded: bool
    usage: UsageView
    cost: CostView | None
    error: ErrorView | None
    partial: str | None
    """What it had said when it was stopped."""
    approvals: list[ApprovalView]
    """Those that wait for a decision."""


class ChatSummary(View):
    id: str
    title: str
    agent: str
    status: str
    created_at: str
    updated_at: str


class ChatView(View):
    id: str
    interactions: list[InteractionView]
    created_at: str
    title: str
    agent: str
    status: str
    updated_at: str
    last_seq: int
    last_event_id: str
    """A cursor for the chat's stream: everything after what is here."""
    truncated: bool
    """True if older interactions are left out: ask for those with `next` as `before`."""
    next: str | None


class ChatPage(View):
    chats: list[ChatSummary]
    next: str | None


class ApprovalPage(View):
    approvals: list[ApprovalView]
    next: str | None


class GrantView(View):
    grant_id: str
    chat_id: str
    tool: str
    scope: Literal["run", "thread"]
    granted_at: str
    granted_by: str | None


class GrantPage(View):
    grants: list[GrantView]
    next: str | None


class BranchView(View):
    interaction_id: str
    parent_id: str | None
    edits: str | None
    status: InteractionStatus
    user_message: str
    created_at: str
    visible: bool


class BranchList(View):
    head: str | None
    branches: list[BranchView]


class ToolView(View):
    name: str
    description: str
    effect: str
    parameters: dict[str, Any]


class AgentView(View):
    name: str
    description: str | None
    model: str
    examples: list[str]
    tools: list[ToolView]


class AgentList(View):
    agents: list[AgentView]


class Processed(View):
    status: Literal["processed"] = "processed"
    approval_id: str
    approved: bool


class Cancelling(View):
    status: Literal["cancelling"] = "cancelling"
    interaction_id: str
    message: str = "Interaction will stop at next checkpoint"


def chat_summary(thread: Thread) -> ChatSummary:
    return ChatSummary(
        id=thread.wire_id,
        title=str(thread.metadata.get("title", "")),
        agent=thread.agent,
        status=_status(thread.status),
        created_at=spelled_time(thread.created_at),
        updated_at=spelled_time(thread.updated_at),
    )


def interaction_view(
    thread: Thread, state: ThreadState, run: Run, *, visible: bool, with_state: bool = True
) -> InteractionView:
    plain = interaction_of(state, run.run_id, with_state=with_state)
    failure = run.failure
    return InteractionView(
        **dict(plain),
        agent=run.agent or thread.agent,
        items=[_item(part) for part in run.message.parts[1:]] if run.message else [],
        parent_id=run.parent_run,
        edits=run.edits,
        superseded=not visible,
        usage=UsageView(**usage_payload(run.usage)),
        cost=CostView(**cost_payload(run.usage.cost)) if run.usage.cost else None,
        error=ErrorView(
            code=failure.code, message=failure.message, correlation_id=failure.correlation_id
        )
        if failure
        else None,
        partial=run.cancelled.partial if run.cancelled else None,
        approvals=[
            _approval(thread, run, call, call.approval)
            for call in run.calls.values()
            if call.approval is not None and call.waits
        ],
    )


def asked_view(asked: Asked) -> ApprovalView:
    return _approval(asked.thread, asked.run, asked.call, asked.approval)


def decision_view(decision: ApprovalDecided) -> DecisionView:
    return DecisionView(
        approved=decision.outcome == "approved",
        by=decision.by,
        decided_by=decision.decided_by,
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
    )


def branch_list(state: ThreadState) -> BranchList:
    """Every interaction as a node of the conversation's tree, oldest first."""
    visible = {run.run_id for run in state.branch()}
    return BranchList(
        head=state.head_run,
        branches=[
            BranchView(
                interaction_id=run.run_id,
                parent_id=run.parent_run,
                edits=run.edits,
                status=interaction_of(state, run.run_id, with_state=False).status,
                user_message=run.message.text if run.message else "",
                created_at=spelled_time(run.created_at),
                visible=run.run_id in visible,
            )
            for run in state.runs.values()
        ],
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
        late_result=call.late_result,
        decision=decision_view(approval.decision) if approval.decision else None,
        **approval_payload(request),
    )


def _item(part: Part) -> ItemView:
    kind: Literal["text", "image"] = "image" if part.kind == "image" else "text"
    return ItemView(content_type=kind, content=part.content, name=part.name)


def _status(status: str) -> str:
    """A chat's status in the words of its interactions; a new one is idle."""
    return "WAITING_APPROVAL" if status == "waiting" else status.upper()
