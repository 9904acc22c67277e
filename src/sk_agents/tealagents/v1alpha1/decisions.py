"""From a resume request to the decisions it asks for. Pure: the engine decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sk_agents.engine.calls.call import Approval, Call
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalMismatch,
    ApprovalNotFound,
    Conflict,
    InvalidInput,
    PauseRequired,
)
from sk_agents.tealagents.models import Action, CallDecision, ResumeRequest
from sk_agents.tealagents.v1alpha1.agent import Progress

Wanted = tuple[Approval, CallDecision]


def wanted_decisions(
    progress: Progress,
    resume: ResumeRequest,
    key: str | None,
    *,
    user_id: str,
    is_decided_by: Callable[[Approval], bool] = lambda _: True,
) -> list[Wanted]:
    """What to decide; nothing if the same request, known by its key, has decided it before.

    An action without names is for all waiting calls that the caller decides about: `is_decided_by`.

    Raises:
        InvalidInput: neither an action nor decisions, or both; or the key was another request's.
        ApprovalNotFound: a named call is not of this request.
        ApprovalAlreadyDecided, ApprovalMismatch: none of the calls waits, or another pause does.
        PauseRequired: the resume must say which pause it means.
    """
    if not resume.is_complete:
        raise InvalidInput("Give either an action or decisions.")
    if key is not None and (earlier := _decided_with(progress, key, user_id)):
        # One resume is one commit: it has decided everything that it was about.
        _check_repeated(resume, earlier)
        return []
    if resume.pause is not None and resume.pause != progress.pause:
        raise ApprovalMismatch(
            "This request waits for something else by now, or for nothing.",
            members={"decisions": recorded_decisions(progress)},
        )
    if resume.decisions is None:
        if resume.pause is None and progress.pauses > 1:
            decisions = recorded_decisions(progress)
            raise PauseRequired(members={"pause": progress.pause, "decisions": decisions})
        every = list(progress.waiting_calls)
        # If the caller decides about none of them, the engine says why.
        waiting = [one for one in every if is_decided_by(one[1])] or every
    else:
        waiting = _named(progress, resume.decisions)
    if not waiting:
        raise already_decided(progress)
    return _matched(waiting, resume)


def recorded_decisions(progress: Progress) -> list[dict[str, Any]]:
    """What has been decided in this request so far."""
    return [
        {
            "tool_call_id": decision.call_id,
            "outcome": decision.outcome,
            "by": decision.by,
            "decided_by": decision.decided_by,
            "decided_at": decision.at.isoformat().replace("+00:00", "Z"),
        }
        for call in progress.calls.values()
        if call.approval is not None and (decision := call.approval.decision) is not None
    ]


def already_decided(progress: Progress) -> Conflict:
    decisions = recorded_decisions(progress)
    if not decisions:
        return Conflict("This request waits for no decision.")
    return ApprovalAlreadyDecided(members={"decisions": decisions})


def _named(progress: Progress, decisions: Iterable[CallDecision]) -> list[tuple[Call, Approval]]:
    named: list[tuple[Call, Approval]] = []
    for decision in decisions:
        call = progress.calls.get(decision.tool_call_id)
        if call is None or call.approval is None:
            raise ApprovalNotFound(f"No tool call {decision.tool_call_id} waits in this request.")
        if not call.waits:
            raise already_decided(progress)
        named.append((call, call.approval))
    return named


def _matched(calls: Iterable[tuple[Call, Approval]], resume: ResumeRequest) -> list[Wanted]:
    by_call = {decision.tool_call_id: decision for decision in resume.decisions or ()}
    matched: list[Wanted] = []
    for call, approval in calls:
        call_id = call.proposal.call_id
        decision = by_call.get(call_id)
        if decision is None and resume.action is not None:
            decision = CallDecision(tool_call_id=call_id, action=resume.action)
        if decision is not None:
            matched.append((approval, decision))
    return matched


def _check_repeated(resume: ResumeRequest, earlier: Mapping[str, Action]) -> None:
    wanted = {one.tool_call_id: one.action for one in resume.decisions or ()}
    if resume.action is not None:
        wanted = dict.fromkeys(earlier, resume.action)
    if wanted != earlier:
        raise InvalidInput("This idempotency key was used for another request.")


def _decided_with(progress: Progress, key: str, user_id: str) -> dict[str, Action]:
    """By the ids of the calls. A key is its user's own: another one may have chosen the same."""
    return {
        decision.call_id: "approve" if decision.outcome == "approved" else "reject"
        for call in progress.calls.values()
        if call.approval is not None
        and (decision := call.approval.decision) is not None
        and (decision.idempotency_key, decision.decided_by) == (key, user_id)
    }
