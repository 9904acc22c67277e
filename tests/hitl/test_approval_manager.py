"""Waiting for an approval and giving one, from different places."""

import asyncio
from pathlib import Path

import pytest

from sk_agents.exceptions import ApprovalAlreadyDecided, ApprovalNotFound
from sk_agents.hitl.approval_manager import ApprovalManager
from sk_agents.testing.scripted_model import calls, says
from tests.engine.kit import SEND_X, USER, Talk, talking
from tests.patience import seconds
from tests.requirements import requirement


async def asked(talk: Talk) -> str:
    """The approval a run now waits for."""
    run = await talk.ask()
    (approval,) = run.pending_approvals
    return approval.request.approval_id


@requirement("S004-4.2-request-approval", "S004-4.2-respond")
@pytest.mark.parametrize("approved", [True, False])
async def test_who_waits_learns_the_decision(tmp_path: Path, approved: bool) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await asked(talk)
        waiter = ApprovalManager(talk.engine, USER)
        waiting = asyncio.create_task(waiter.request_approval(approval_id))
        await asyncio.sleep(0)
        assert not waiting.done()
        await ApprovalManager(talk.engine, USER).respond(approval_id, approved)
        async with asyncio.timeout(seconds(5)):
            assert await waiting is approved


async def test_decision_made_before_anybody_waited_is_not_lost(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await asked(talk)
        manager = ApprovalManager(talk.engine, USER)
        await manager.respond(approval_id, True)
        async with asyncio.timeout(seconds(5)):
            assert await manager.request_approval(approval_id) is True


async def test_decision_about_another_call_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    script = [calls(("Mail-send", {"text": "x"}), ("Mail-send", {"text": "y"})), says("done")]
    async with talking(tmp_path, script=script) as talk:
        await talk.ask()
        first, second = await talk.approvals("r1")
        manager = ApprovalManager(talk.engine, USER)
        await manager.respond(first, False)
        waiting = asyncio.create_task(manager.request_approval(second))
        await manager.respond(second, True)
        async with asyncio.timeout(seconds(5)):
            assert await waiting is True
            assert await manager.request_approval(first) is False


async def test_first_answer_stands(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await asked(talk)
        manager = ApprovalManager(talk.engine, USER)
        await manager.respond(approval_id, False)
        with pytest.raises(ApprovalAlreadyDecided):
            await manager.respond(approval_id, True)


async def test_withdrawn_approval_is_a_no(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await asked(talk)
        await talk.cancel("r1")
        async with asyncio.timeout(seconds(5)):
            assert await ApprovalManager(talk.engine, USER).request_approval(approval_id) is False


@pytest.mark.parametrize("user", [USER, "eve"])
async def test_unknown_and_foreign_approvals_are_alike(tmp_path: Path, user: str) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await asked(talk) if user == "eve" else "approval_unknown"
        manager = ApprovalManager(talk.engine, user)
        with pytest.raises(ApprovalNotFound):
            await manager.request_approval(approval_id)
        with pytest.raises(ApprovalNotFound):
            await manager.respond(approval_id, True)


async def test_manager_without_an_engine_blocks_until_the_answer() -> None:
    manager = ApprovalManager()
    task = asyncio.create_task(manager.request_approval("test_approval"))
    await asyncio.sleep(0)
    assert not task.done()
    async with asyncio.timeout(seconds(5)):
        await manager.respond("test_approval", True)
        assert await task is True
    with pytest.raises(ApprovalAlreadyDecided):
        manager.respond("test_approval", False)
    with pytest.raises(ApprovalNotFound):
        manager.respond("another", True)
