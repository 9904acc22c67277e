"""What to do next with a call that has no result yet. Pure: decides, does nothing."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Literal

from sk_agents.engine.calls.call import SIGN_IN, Approval, Call
from sk_agents.engine.events import ApprovalRequested, GrantChanged
from sk_agents.engine.log.canonical import approval_digest, digest
from sk_agents.engine.log.state import Run, ThreadState
from sk_agents.engine.models import (
    ApprovalState,
    Attachment,
    CallState,
    DecidedBy,
    Effect,
    Review,
    ToolCall,
    demands_of,
)
from sk_agents.engine.ports import Redaction
from sk_agents.engine.run.redacting import redacted_shown
from sk_agents.engine.turns import ToolSpec
from sk_agents.engine.values import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """Run it: as approved, under a grant, freely, or once more."""

    attempt: int = 1
    approval_id: str | None = None
    grant_id: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A person must allow it, answer it, lend it their authorization, or sign in somewhere."""

    kind: Literal["tool", "question", "auth"] = "tool"
    sign_in: str | None = None


@dataclass(frozen=True, slots=True)
class AskAgain:
    """What was approved is no longer what would run: withdraw the approval, and ask again."""

    approval: Approval


@dataclass(frozen=True, slots=True)
class AskOutcome:
    """It was started and its owner was lost: a person must say what happened."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """It gets its result without being run, again or at all; `text` is for the model.

    `by` is `None` when the call itself is at fault.
    """

    outcome: Literal["ok", "error", "refused"]
    by: DecidedBy | None
    text: str
    attachments: tuple[Attachment, ...] | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A person has been asked."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Another instance holds the header that this call was lent: that one runs it."""


Step = Start | Ask | AskAgain | AskOutcome | Finish | Wait | HandOver


@dataclass(frozen=True, slots=True)
class Case:
    """A call, and everything that decides what is done with it.

    `verdict` is the policy's answer for the call as it stands, `review` what it demands of those
    who decide about it; `spec` is the tool as it is now. With
    `lacks_authorization` the tool may not be run before a user has lent it their header; with
    `may_hand_over`, one that was lent a header elsewhere is left to the instance that has it.
    `sign_in` is where the user must sign in before it can run.
    """

    thread_id: str
    state: ThreadState
    run: Run
    call: Call
    spec: ToolSpec | None
    verdict: str
    lacks_authorization: bool = False
    may_hand_over: bool = False
    sign_in: str | None = None
    review: Review | None = None
    redaction: Redaction | None = None

    def digest_of(self, call: ToolCall) -> str:
        return digest_of(self.thread_id, self.run.run_id, call, self.spec, self.review)


def digest_of(
    thread_id: str, run_id: str, call: ToolCall, spec: ToolSpec | None, review: Review | None
) -> str:
    return approval_digest(
        thread_id=thread_id,
        run_id=run_id,
        call_id=call.id,
        tool=call.name,
        definition_digest=spec.definition_digest if spec is not None else "",
        arguments=call.arguments,
        demands=demands_of(review),
    )


def shown_call(call: ToolCall) -> dict[str, Any]:
    """What a person is shown of a call they are asked about."""
    return {"tool_name": call.name, "arguments": call.arguments}


def may_spend_more(run: Run) -> bool:
    """Whether a person has allowed it, when this run was asked about because of a budget."""
    return any(
        call.proposal.budget is not None
        and call.approval is not None
        and call.approval.state in (ApprovalState.APPROVED, ApprovalState.CONSUMED)
        for call in run.calls.values()
    )


def invalid_rounds(run: Run) -> int:
    """How many rounds in a row, up to now, the model asked only for calls that cannot run."""
    count = 0
    latest_first = reversed(run.calls.values())
    for _, calls in groupby(latest_first, key=lambda call: call.proposal.round):
        if any(call.proposal.problem is None for call in calls):
            break
        count += 1
    return count


def next_step(case: Case) -> Step:
    step = _next_step(case)
    if not isinstance(step, Start):
        return step
    if case.sign_in is not None and not case.call.has_signed_in:
        return Ask("auth", case.sign_in)
    if not case.lacks_authorization:
        return step
    return HandOver() if case.may_hand_over and case.call.has_lent_header else Ask("auth")


def _next_step(case: Case) -> Step:
    call, spec, approval = case.call, case.spec, case.call.approval
    if call.proposal.problem is not None:
        return Finish("error", None, call.proposal.problem)
    if call.waits:
        return Wait()
    if approval is not None and approval.request.kind == "auth":
        lent = _after_auth(case, approval)
        if lent is not None:
            return lent
    match call.state:
        case CallState.STARTED:
            return _lost(call, spec)
        case CallState.UNKNOWN:
            return _after_unknown(case)
    if approval is not None and approval.state in (ApprovalState.REJECTED, ApprovalState.EXPIRED):
        return _refused(approval)
    name = call.wanted.name
    if spec is None:
        return Finish("error", None, f"There is no tool named {name} any more.")
    if case.verdict == "deny":
        return Finish("refused", "policy", "This call is not allowed by policy. It did not run.")
    if approval is not None and approval.state is ApprovalState.APPROVED:
        return _approved(case, approval)
    if spec.question:
        return Ask("question")
    if call.proposal.budget is not None:
        return Ask()
    if case.verdict == "allow":
        return Start()
    if demands_of(case.review) is not None:
        # A requester's standing approval does not stand for others, and gives no reason.
        return Ask()
    for grant in case.state.grants.values():
        if _covers(grant, case.run, spec):
            return Start(grant_id=grant.grant_id)
    return Ask()


def _covers(grant: GrantChanged, run: Run, spec: ToolSpec) -> bool:
    """A tool that was changed, or another agent's of the same name, is not what was allowed."""
    if grant.tool != spec.name or grant.definition_digest not in (None, spec.definition_digest):
        return False
    return grant.scope == "thread" or grant.run_id == run.run_id


def _after_auth(case: Case, approval: Approval) -> Step | None:
    """What the answer means; `None` if the call is to be looked at as if it was never asked."""
    started = case.call.started
    match approval.state:
        case ApprovalState.APPROVED if case.spec is not None and case.verdict != "deny":
            return _approved(case, approval, started.attempt + 1 if started is not None else 1)
        case ApprovalState.REJECTED | ApprovalState.EXPIRED if started is None:
            return _refused(approval)
        case ApprovalState.REJECTED | ApprovalState.EXPIRED:
            by: DecidedBy = "human" if approval.state is ApprovalState.REJECTED else "timeout"
            text = "It was started, and not run again for want of the user's authorization."
            return Finish("error", by, text)
        case _:
            return None


def _refused(approval: Approval) -> Step:
    kind, is_late = approval.request.kind, approval.state is ApprovalState.EXPIRED
    if kind == "question":
        if is_late:
            return Finish("error", "timeout", "Nobody answered in time.")
        return Finish("error", "human", declined(approval))
    if is_late:
        done = "authorized" if kind == "auth" else "approved"
        return Finish("refused", "timeout", f"Nobody {done} this call in time. It did not run.")
    decision = approval.decision
    who = (decision.decided_by_name or decision.decided_by if decision else None) or "the user"
    return Finish("refused", "human", f"Rejected by {who}{_reason(approval)} It did not run.")


def declined(approval: Approval) -> str:
    return f"The user did not want to answer{_reason(approval)}"


def _reason(approval: Approval) -> str:
    """The end of a sentence: a colon with the reason that was given, or the full stop alone."""
    decision = approval.decision
    given = (decision.message or "").strip() if decision else ""
    if not given:
        return "."
    return f": {given}" if given.endswith((".", "!", "?")) else f": {given}."


def _approved(case: Case, approval: Approval, attempt: int = 1) -> Step:
    decision = approval.decision
    approved = (decision.digest if decision else None) or approval.request.digest
    is_same = approved == case.digest_of(case.call.wanted)
    if not is_same or not _is_as_shown(case, approval.request):
        return AskAgain(approval)
    return Start(attempt, approval_id=approval.request.approval_id)


def _is_as_shown(case: Case, request: ApprovalRequested) -> bool:
    """Whether this request would be made again: the reviewer has read it, not the call."""
    spec = case.spec
    kind = "question" if spec is not None and spec.question else "tool"
    if case.call.state is CallState.UNKNOWN:
        kind = "outcome_unknown"
    is_lent = spec is not None and spec.requires_authorization
    if request.kind == "auth" and (is_lent or SIGN_IN in request.shown):
        kind = "auth"
    # A reviewer who changed the arguments was asked about those proposed.
    asked = case.call.proposed if kind == "tool" else case.call.wanted
    shown = redacted_shown(case.redaction, shown_call(asked))
    return (
        request.kind == kind
        and request.digest == case.digest_of(asked)
        # Not `==`: to Python, true is 1.
        and digest({name: request.shown.get(name) for name in shown}) == digest(shown)
        and (kind != "tool" or demands_of(request.review) == demands_of(case.review))
    )


def _lost(call: Call, spec: ToolSpec | None) -> Step:
    """Started without a result: its owner is gone, or it broke off and does no harm."""
    assert call.started is not None
    if spec is not None and spec.effect in (Effect.READ_ONLY, Effect.IDEMPOTENT):
        return Start(call.started.attempt + 1)
    return AskOutcome("owner_lost")


def _after_unknown(case: Case) -> Step:
    call, approval = case.call, case.call.approval
    if (
        approval is None
        or approval.request.kind != "outcome_unknown"
        or approval.state is ApprovalState.WITHDRAWN
    ):
        return AskOutcome("owner_lost")
    if approval.state is ApprovalState.EXPIRED:
        return Finish("error", "timeout", "Its outcome is not known: nobody said in time.")
    choice = approval.decision.choice if approval.decision else None
    if choice == "retry" and case.spec is not None:
        return _approved(case, approval, call.started.attempt + 1 if call.started else 2)
    if choice == "done":
        text = call.late_result or "Done: the user confirmed that it took effect."
        return Finish("ok", "human", text, call.late_attachments)
    return Finish("error", "human", "Its outcome is not known and the user gave up on it.")
