"""Approvals by others than the requester: who may vote, what a vote means, what its end of time is.

Pure. A right to vote is judged when the vote is cast; a vote that was cast counts also after its
voter has lost the right. One no rejects the call. It runs once as many people as the review asks
for have said yes to the same call.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from datetime import timedelta

from sk_agents.engine.calls.call import Approval
from sk_agents.engine.commands import DecideApproval, WithdrawVote
from sk_agents.engine.events import ReviewExtended, VoteCast, VoteWithdrawn
from sk_agents.engine.models import Audience, audience_key
from sk_agents.engine.ports import Clock
from sk_agents.exceptions import ApprovalNotFound, NotApprover, VoteNotFound


def keys_of(user_id: str, memberships: Set[str]) -> Set[str]:
    """The keys of every audience this person belongs to."""
    return memberships | {audience_key("user", user_id)}


def is_concerned(approval: Approval, user_id: str, memberships: Set[str]) -> bool:
    """Whether a person who is not the requester may see the approval."""
    return user_id in approval.votes or not keys_of(user_id, memberships).isdisjoint(
        approval.audience.keys
    )


def right_to_vote(approval: Approval, owner: str, user_id: str, memberships: Set[str]) -> str:
    """The key of the audience by which this person may vote now.

    Raises:
        NotApprover: the requester, who may not, or a voter who has lost the right.
        ApprovalNotFound: a person whom it does not concern.
    """
    request, review = approval.request, approval.request.review
    if review is not None and review.not_requester and user_id == owner:
        raise NotApprover(
            "The person who asked for this call may not decide about it.",
            approval_id=request.approval_id,
        )
    keys = keys_of(user_id, memberships)
    right = next((key for key in approval.audience.keys if key in keys), None)
    if right is not None:
        return right
    if user_id == owner or user_id in approval.votes:
        raise NotApprover(approval_id=request.approval_id)
    raise ApprovalNotFound(approval_id=request.approval_id)


def votes(
    approval: Approval, owner: str, command: DecideApproval, digest: str
) -> Iterator[VoteCast]:
    """The vote this command casts; none if this person has said yes before.

    Raises:
        NotApprover, ApprovalNotFound: see `right_to_vote`.
    """
    right = right_to_vote(approval, owner, command.user_id, command.memberships)
    if command.approved and command.user_id in approval.votes:
        return
    request = approval.request
    yield VoteCast(
        run_id=request.run_id,
        approval_id=request.approval_id,
        call_id=request.call_id,
        voter=command.user_id,
        voter_name=command.user_name,
        right=right,
        approved=command.approved,
        digest=digest,
        message=command.message,
        idempotency_key=command.idempotency_key,
    )


def withdrawn_vote(approval: Approval, owner: str, command: WithdrawVote) -> VoteWithdrawn:
    """A voter may take a vote back also after having lost the right to cast it.

    Raises:
        VoteNotFound: this person has no vote.
        NotApprover, ApprovalNotFound: see `right_to_vote`.
    """
    if command.user_id not in approval.votes:
        right_to_vote(approval, owner, command.user_id, command.memberships)
        raise VoteNotFound(approval_id=command.approval_id)
    request = approval.request
    return VoteWithdrawn(
        run_id=request.run_id,
        approval_id=request.approval_id,
        call_id=request.call_id,
        voter=command.user_id,
        voter_name=command.user_name,
    )


def extension(approval: Approval, clock: Clock) -> ReviewExtended | None:
    """What happens instead of an expiry when its time is over; `None`: it expires.

    It happens once: a review that was escalated expires at the end of its second time.
    """
    request, review = approval.request, approval.request.review
    if review is None or approval.extension is not None or review.on_expiry == "deny":
        return None
    held = ReviewExtended(
        run_id=request.run_id,
        approval_id=request.approval_id,
        call_id=request.call_id,
        audience=approval.audience,
    )
    if review.escalate_to is None:
        return held
    return held.model_copy(
        update={
            "audience": Audience(groups=(review.escalate_to,)),
            "left": approval.audience,
            "expires_at": clock.now() + timedelta(seconds=review.lifetime or 0),
            "asked_uptime": clock.monotonic(),
        }
    )
