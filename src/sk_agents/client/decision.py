"""What a person decides about a call, as it is sent."""

from __future__ import annotations

from typing import Any, Literal, TypedDict
from uuid import uuid4

from sk_agents.client.events import ApprovalRequired
from sk_agents.client.link import Request
from sk_agents.client.records import PendingApproval

Remember = Literal["run", "thread"]
Choice = Literal["done", "retry", "give_up"]


class Verdict(TypedDict, total=False):
    """Beside yes or no: a word to the model, other arguments for the call, a standing approval for
    the tool; a `choice` for a call whose outcome is unknown, an `answer` to a question."""

    message: str | None
    edited_arguments: dict[str, Any] | None
    remember: Remember | None
    choice: Choice | None
    answer: Any


def decision_request(
    path: str,
    approved: bool,
    approval: ApprovalRequired | PendingApproval | str,
    verdict: Verdict,
) -> Request:
    """Names the approval in the body, and what was shown of it: nothing else can be approved."""
    body: dict[str, Any] = {"approved": approved}
    body.update({name: value for name, value in verdict.items() if value is not None})
    if not isinstance(approval, str) and approval.digest:
        body["digest"] = approval.digest
    if isinstance(approval, ApprovalRequired):
        body["approval_id"] = approval.approval_id
    return Request("POST", path, body, headers={"Idempotency-Key": str(uuid4())})
