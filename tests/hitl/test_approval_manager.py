"""Waiting for an approval and giving one, from different places."""

import asyncio

import pytest

from sk_agents.engine.events import ApprovalDecided
from sk_agents.exceptions import ApprovalAlreadyDecided, ApprovalNotFound
from sk_agents.hitl.approval_manager import ApprovalManager


class Log:
    """A log that holds decisions and nothing else."""

    def __init__(self, *approval_ids: str) -> None:
        self._decided: dict[str, ApprovalDecided | None] = dict.fromkeys(approval_ids)
        self._changed = asyncio.Condition()

    async def decision(self, approval_id: str) -> ApprovalDecided:
        if approval_id not in self._decided:
            raise ApprovalNotFound
        async with self._changed:
            await self._changed.wait_for(lambda: self._decided[approval_id] is not None)
        found = self._decided[approval_id]
        assert found is not None
        return found

    async def decide(self, approval_id: str, *, approved: bool) -> None:
        await self.write(approval_id, "approved" if approved else "rejected")

    async def write(self, approval_id: str, outcome: str) -> None:
        if approval_id not in self._decided:
            raise ApprovalNotFound
        if self._decided[approval_id] is not None:
            raise ApprovalAlreadyDecided
        async with self._changed:
            self._decided[approval_id] = ApprovalDecided.model_validate(
                {"approval_id": approval_id, "call_id": "c1", "outcome": outcome, "by": "human"}
            )
            self._changed.notify_all()


@pytest.mark.parametrize("approved", [True, False])
async def test_who_waits_learns_the_decision_made_elsewhere(approved: bool) -> None:
    log = Log("a1", "a2")
    waiting = asyncio.create_task(ApprovalManager(log).request_approval("a1"))
    await asyncio.sleep(0)
    await ApprovalManager(log).respond("a2", not approved)
    await ApprovalManager(log).respond("a1", approved)
    async with asyncio.timeout(5):
        assert await waiting is approved


async def test_decision_made_before_anybody_waited_is_not_lost() -> None:
    log = Log("a1")
    await ApprovalManager(log).respond("a1", True)
    async with asyncio.timeout(5):
        assert await ApprovalManager(log).request_approval("a1") is True


@pytest.mark.parametrize("outcome", ["rejected", "expired", "withdrawn"])
async def test_every_outcome_but_approved_is_a_no(outcome: str) -> None:
    log = Log("a1")
    await log.write("a1", outcome)
    assert await ApprovalManager(log).request_approval("a1") is False


async def test_second_decision_is_refused_and_changes_nothing() -> None:
    manager = ApprovalManager(Log("a1"))
    await manager.respond("a1", False)
    with pytest.raises(ApprovalAlreadyDecided):
        await manager.respond("a1", True)
    assert await manager.request_approval("a1") is False


async def test_unknown_approval_is_refused() -> None:
    manager = ApprovalManager(Log())
    with pytest.raises(ApprovalNotFound):
        await manager.request_approval("a1")
    with pytest.raises(ApprovalNotFound):
        await manager.respond("a1", True)
