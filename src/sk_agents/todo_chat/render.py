"""From a run to the reply. Pure."""

from __future__ import annotations

from sk_agents.engine.calls.call import Approval, Call
from sk_agents.engine.calls.steps import effective_call
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import RunStatus
from sk_agents.todo_chat.models import CallView, ChatReply, PendingApproval


def reply_of(session_id: str, run: Run) -> ChatReply:
    """Of a run that has ended without failing, or waits for a person."""
    waiting = [call.approval for call in run.calls.values() if call.approval and call.waits]
    is_paused = run.status is RunStatus.WAITING
    return ChatReply(
        session_id=session_id,
        request_id=run.run_id,
        response=run.answer.content if run.answer is not None else "",
        tool_calls=[_call(call) for call in run.calls.values()],
        status="Paused"
        if is_paused
        else "Canceled"
        if run.status is RunStatus.CANCELLED
        else "Completed",
        approvals=[_approval(approval) for approval in waiting] if is_paused else [],
    )


def _call(call: Call) -> CallView:
    made = effective_call(call)
    result = call.finished.result if call.finished is not None else None
    return CallView(name=made.name, arguments=made.arguments, result=result)


def _approval(approval: Approval) -> PendingApproval:
    request = approval.request
    return PendingApproval(
        approval_id=request.approval_id,
        kind=request.kind,
        tool_name=str(request.shown.get("tool_name", "")),
        arguments=request.shown.get("arguments", {}),
        digest=request.digest,
        expires_at=request.expires_at.isoformat() if request.expires_at else None,
        choices=request.choices,
        answer_schema=request.answer_schema,
    )
