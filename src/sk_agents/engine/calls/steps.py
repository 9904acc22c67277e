"""What to do next with a call that has no result yet. Pure: decides, does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from sk_agents.engine.calls.call import Approval, Call
from sk_agents.engine.events import ApprovalRequested
from sk_agents.engine.log.canonical import approval_digest, digest
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import ApprovalState, CallState, DecidedBy, Effect, ToolCall
from sk_agents.engine.turns import ToolSpec


@dataclass(frozen=True, slots=True)
class Start:
    """Run it: as approved, under a grant, freely, or once more."""

    attempt: int = 1
    approval_id: str | None = None
    grant_id: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A person must allow it, answer it, or lend it their authorization."""

    kind: Literal["tool", "question", "auth"] = "tool"


@dataclass(frozen=True, slots=True)
class AskAgain:
    """What was approved is no longer what would run: withdraw, and ask anew."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class AskOutcome:
    """It was started and its owner was lost: a person must say what happened."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """It does not run; `by` is nobody's when the call itself is at fault."""

    by: DecidedBy | None
    text: str


@dataclass(frozen=True, slots=True)
class Settle:
    """A person said what became of it, or nobody did in time."""

    text: str
    outcome: Literal["ok", "error"]
    by: DecidedBy


@dataclass(frozen=True, slots=True)
class Wait:
    """A person has been asked."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Another instance holds the header that this call was lent: that one runs it."""


Step = Start | Ask | AskAgain | AskOutcome | Refuse | Settle | Wait | HandOver


def effective_arguments(call: Call) -> dict[str, Any]:
    """What will run: the reviewer's version where there is one."""
    return call.proposal.arguments if call.edited is None else call.edited


def effective_call(call: Call) -> ToolCall:
    proposal = call.proposal
    return ToolCall(
        id=proposal.call_id,
        plugin_name=proposal.plugin_name,
        function_name=proposal.function_name,
        arguments=effective_arguments(call),
    )


def digest_of(thread_id: str, run_id: str, call: ToolCall, spec: ToolSpec | None) -> str:
    return approval_digest(
        thread_id=thread_id,
        run_id=run_id,
        call_id=call.id,
        tool=call.name,
        definition_digest=spec.definition_digest if spec is not None else "",
        arguments=call.arguments,
    )


def shown_call(call: ToolCall) -> dict[str, Any]:
    """What a person is shown of a call they are asked about."""
    return {"tool_name": call.name, "arguments": call.arguments}


def grant_for(state: ThreadState, run: Run, tool: str) -> str | None:
    """A standing approval that covers this tool in this run."""
    for grant in state.grants.values():
        if grant.tool == tool and (grant.scope == "thread" or grant.run_id == run.run_id):
            return grant.grant_id
    return None


def invalid_rounds(run: Run) -> int:
    """How many rounds in a row, up to now, the model asked only for calls that cannot run."""
    count = 0
    latest_first = reversed(run.calls.values())
    for _, calls in groupby(latest_first, key=lambda call: call.proposal.round):
        if any(call.proposal.problem is None for call in calls):
            break
        count += 1
    return count


def next_step(
    thread_id: str,
    state: ThreadState,
    run: Run,
    call: Call,
    spec: ToolSpec | None,
    verdict: str,
    *,
    lacks_authorization: bool = False,
    may_hand_over: bool = False,
) -> Step:
    """`verdict` is the policy's answer for the call as it stands; `spec` the tool as it is now.

    With `lacks_authorization` the tool may not be run before somebody has lent it theirs; with
    `may_hand_over`, one that was lent a header elsewhere is left to the instance that has it.
    """
    step = _next_step(thread_id, state, run, call, spec, verdict)
    if not lacks_authorization or not isinstance(step, Start):
        return step
    return HandOver() if may_hand_over and call.has_lent_header else Ask("auth")


def _next_step(
    thread_id: str, state: ThreadState, run: Run, call: Call, spec: ToolSpec | None, verdict: str
) -> Step:
    if call.proposal.problem is not None:
        return Refuse(None, call.proposal.problem)
    if call.waits:
        return Wait()
    if call.approval is not None and call.approval.request.kind == "auth":
        lent = _after_auth(thread_id, run, call, call.approval, spec, verdict)
        if lent is not None:
            return lent
    match call.state:
        case CallState.STARTED:
            return _lost(call, spec)
        case CallState.UNKNOWN:
            return _after_unknown(thread_id, run, call, spec)
    approval = call.approval
    if approval is not None and approval.state in (ApprovalState.REJECTED, ApprovalState.EXPIRED):
        return _refused(approval)
    wanted = effective_call(call)
    if spec is None:
        return Refuse(None, f"There is no tool named {wanted.name} any more.")
    if verdict == "deny":
        return Refuse("policy", "This call is not allowed by policy. It did not run.")
    if approval is not None and approval.state is ApprovalState.APPROVED:
        return _approved(thread_id, run, call, approval, spec)
    if spec.question:
        return Ask("question")
    if verdict == "allow":
        return Start()
    grant_id = grant_for(state, run, wanted.name)
    return Start(grant_id=grant_id) if grant_id is not None else Ask()


def _after_auth(
    thread_id: str, run: Run, call: Call, approval: Approval, spec: ToolSpec | None, verdict: str
) -> Step | None:
    """What the answer means; `None` if the call is to be looked at as if nobody had been asked."""
    match approval.state:
        case ApprovalState.APPROVED if spec is not None and verdict != "deny":
            attempt = call.started.attempt + 1 if call.started is not None else 1
            return _approved(thread_id, run, call, approval, spec, attempt)
        case ApprovalState.REJECTED | ApprovalState.EXPIRED if call.started is None:
            return _refused(approval)
        case ApprovalState.REJECTED | ApprovalState.EXPIRED:
            by: DecidedBy = "human" if approval.state is ApprovalState.REJECTED else "timeout"
            text = "It was started, and not run again for want of the user's authorization."
            return Settle(text, "error", by)
        case _:
            return None


def _refused(approval: Approval) -> Step:
    if approval.request.kind == "question":
        return _unanswered(approval)
    if approval.state is ApprovalState.EXPIRED:
        done = "authorized" if approval.request.kind == "auth" else "approved"
        return Refuse("timeout", f"Nobody {done} this call in time. It did not run.")
    who = (approval.decision.decided_by if approval.decision else None) or "the user"
    return Refuse("human", f"Rejected by {who}{_reason(approval)} It did not run.")


def _reason(approval: Approval) -> str:
    """The end of a sentence: a colon with the reason that was given, or the full stop alone."""
    decision = approval.decision
    given = (decision.message or "").strip() if decision else ""
    if not given:
        return "."
    return f": {given}" if given.endswith((".", "!", "?")) else f": {given}."


def _unanswered(approval: Approval) -> Step:
    if approval.state is ApprovalState.EXPIRED:
        return Settle("Nobody answered in time.", "error", "timeout")
    return Settle(declined(approval), "error", "human")


def declined(approval: Approval) -> str:
    return f"The user did not want to answer{_reason(approval)}"


def _approved(
    thread_id: str,
    run: Run,
    call: Call,
    approval: Approval,
    spec: ToolSpec | None,
    attempt: int = 1,
) -> Step:
    decision = approval.decision
    approved = (decision.digest if decision else None) or approval.request.digest
    is_same = approved == digest_of(thread_id, run.run_id, effective_call(call), spec)
    if not is_same or not _is_as_shown(thread_id, run, call, approval.request, spec):
        return AskAgain(approval.request.approval_id)
    return Start(attempt, approval_id=approval.request.approval_id)


def _is_as_shown(
    thread_id: str, run: Run, call: Call, request: ApprovalRequested, spec: ToolSpec | None
) -> bool:
    """Whether this request would be made again: whoever said yes has read it, not the call."""
    kind = "question" if spec is not None and spec.question else "tool"
    if call.state is CallState.UNKNOWN:
        kind = "outcome_unknown"
    if request.kind == "auth" and spec is not None and spec.requires_authorization:
        kind = "auth"
    asked = effective_call(call)
    if kind == "tool":
        # Who changed the arguments was asked about those proposed.
        asked = asked.model_copy(update={"arguments": call.proposal.arguments})
    shown = shown_call(asked)
    return (
        request.kind == kind
        and request.digest == digest_of(thread_id, run.run_id, asked, spec)
        # Not `==`: to Python, true is 1.
        and digest({name: request.shown.get(name) for name in shown}) == digest(shown)
    )


def _lost(call: Call, spec: ToolSpec | None) -> Step:
    """Started without a result: whoever ran it is gone, or it broke off and does no harm."""
    assert call.started is not None
    if spec is not None and spec.effect in (Effect.READ_ONLY, Effect.IDEMPOTENT):
        return Start(call.started.attempt + 1)
    return AskOutcome("owner_lost")


def _after_unknown(thread_id: str, run: Run, call: Call, spec: ToolSpec | None) -> Step:
    approval = call.approval
    if (
        approval is None
        or approval.request.kind != "outcome_unknown"
        or approval.state is ApprovalState.WITHDRAWN
    ):
        return AskOutcome("owner_lost")
    if approval.state is ApprovalState.EXPIRED:
        return Settle("Its outcome is not known: nobody said in time.", "error", "timeout")
    choice = approval.decision.choice if approval.decision else None
    if choice == "retry" and spec is not None:
        attempt = call.started.attempt + 1 if call.started else 2
        return _approved(thread_id, run, call, approval, spec, attempt)
    if choice == "done":
        text = call.late_result or "Done: the user confirmed that it took effect."
        return Settle(text, "ok", "human")
    return Settle("Its outcome is not known and the user gave up on it.", "error", "human")
