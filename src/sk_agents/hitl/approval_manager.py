"""Waiting for a human and answering for one, as two calls over the log.

Nothing is remembered here: whoever waits may do so in another process than whoever answers, and
both may be restarted in between.
"""

from __future__ import annotations

from typing import Protocol

from sk_agents.engine.events import ApprovalDecided


class Decisions(Protocol):
    """The part of a log that approvals need."""

    async def decision(self, approval_id: str) -> ApprovalDecided:
        """The event by which the approval was decided, as soon as it is in the log.

        Raises:
            ApprovalNotFound: there is no such approval.
        """
        ...

    async def decide(self, approval_id: str, *, approved: bool) -> None:
        """Commit the decision.

        Raises:
            ApprovalNotFound: there is no such approval.
            ApprovalAlreadyDecided, ApprovalExpired: too late; nothing was written.
        """
        ...


class ApprovalManager:
    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions

    async def request_approval(self, approval_id: str) -> bool:
        """Wait until the approval is decided. Only `approved` is a yes.

        Raises:
            ApprovalNotFound: there is no such approval.
        """
        return (await self._decisions.decision(approval_id)).outcome == "approved"

    async def respond(self, approval_id: str, approved: bool) -> None:
        """Decide, for everybody who waits.

        Raises:
            ApprovalNotFound: there is no such approval.
            ApprovalAlreadyDecided, ApprovalExpired: too late; the first decision stands.
        """
        await self._decisions.decide(approval_id, approved=approved)
