"""Waiting for a person's decision and making it, as two calls.

Over an engine nothing is remembered here: the caller that waits and the one that answers may be in
different processes, and both may be restarted in between. Without one, both are parts of one
program, such as a test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import aclosing

from sk_agents.engine.commands import DecideApproval
from sk_agents.engine.engine import Engine
from sk_agents.engine.events import ApprovalDecided
from sk_agents.exceptions import ApprovalAlreadyDecided, ApprovalNotFound


class ApprovalManager:
    """One user's approvals; without an engine, those that are requested of this object."""

    def __init__(self, engine: Engine | None = None, user_id: str = "") -> None:
        self._engine = engine
        self._user_id = user_id
        self._waiting: dict[str, asyncio.Future[bool]] = {}

    async def request_approval(self, approval_id: str) -> bool:
        """Wait until the approval is decided. Only `approved` is a yes.

        Raises:
            ApprovalNotFound: there is no such approval of this user.
        """
        if self._engine is None:
            future = self._waiting.setdefault(
                approval_id, asyncio.get_running_loop().create_future()
            )
            return await asyncio.shield(future)
        entry = await self._engine.catalog.approval(approval_id, self._user_id)
        async with aclosing(self._engine.watch(entry.thread_id)) as watched:
            async for items in watched:
                for item in items:
                    if isinstance(item, ApprovalDecided) and item.approval_id == approval_id:
                        return item.outcome == "approved"
        raise AssertionError("a thread is watched without end")

    def respond(self, approval_id: str, approved: bool) -> Awaitable[None]:
        """Decide, for all who wait. Without an engine it is done before it is awaited.

        Raises:
            ApprovalNotFound: there is no such approval of this user.
            ApprovalAlreadyDecided, ApprovalExpired: too late; the first decision stands.
        """
        if self._engine is not None:
            return self._decide(self._engine, approval_id, approved)
        future = self._waiting.get(approval_id)
        if future is None:
            raise ApprovalNotFound(approval_id=approval_id)
        if future.done():
            raise ApprovalAlreadyDecided(approval_id=approval_id)
        future.set_result(approved)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def _decide(self, engine: Engine, approval_id: str, approved: bool) -> None:
        await engine.decide(DecideApproval(approval_id, self._user_id, approved))
