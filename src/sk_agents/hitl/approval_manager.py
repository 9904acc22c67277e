"""Waiting for a person's decision and making it, as two calls over the log.

Nothing is remembered here: the caller that waits and the one that answers may be in different
processes, and both may be restarted in between.
"""

from __future__ import annotations

from contextlib import aclosing

from sk_agents.engine.commands import DecideApproval
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import ApprovalDecided


class ApprovalManager:
    """One user's approvals."""

    def __init__(self, engine: Engine, user_id: str) -> None:
        self._engine = engine
        self._user_id = user_id

    async def request_approval(self, approval_id: str) -> bool:
        """Wait until the approval is decided. Only `approved` is a yes.

        Raises:
            ApprovalNotFound: there is no such approval of this user.
        """
        entry = await self._engine.catalog.approval(approval_id, self._user_id)
        async with aclosing(self._engine.watch(entry.thread_id)) as watched:
            async for items in watched:
                for item in items:
                    if isinstance(item, ApprovalDecided) and item.approval_id == approval_id:
                        return item.outcome == "approved"
        raise AssertionError("a thread is watched without end")

    async def respond(self, approval_id: str, approved: bool) -> None:
        """Decide, for all who wait.

        Raises:
            ApprovalNotFound: there is no such approval of this user.
            ApprovalAlreadyDecided, ApprovalExpired: too late; the first decision stands.
        """
        await self._engine.decide(DecideApproval(approval_id, self._user_id, approved))
