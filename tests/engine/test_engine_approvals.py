"""A person's word about a call: bound to what was shown, given once, told to the model."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from sk_agents.engine.agent import RunLimits
from sk_agents.engine.calls.call import Approval
from sk_agents.engine.calls.decisions import has_passed
from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    ToolStarted,
)
from sk_agents.engine.models import RunStatus, ToolCall
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    ApprovalMismatch,
    ApprovalNotFound,
    Forbidden,
    InvalidInput,
)
from sk_agents.testing import SettableClock
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import FakePolicy, Verdict
from tests.engine.kit import SEND_X, UNSWEPT, Setup, is_asked_anew, talking, waiting
from tests.engine.openai_rules import problems
from tests.requirements import requirement


async def test_message_of_a_rejection_reaches_the_model(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X, http=True) as talk:
        approval_id = await waiting(talk)
        await talk.decide(approval_id, approved=False, message="ask my boss first")
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        told = talk.prompts[1][-1]["content"]
        assert "Rejected by ada" in told and "ask my boss first" in told
        assert talk.tools.started == []


async def test_edited_arguments_run_as_edited_and_the_model_is_told(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X, http=True) as talk:
        approval_id = await waiting(talk)
        await talk.decide(approval_id, edited_arguments={"text": "y"})
        run = await talk.ended("r1")
        assert talk.tools.started == [("Mail-send", {"text": "y"})]
        told = talk.prompts[1][-1]["content"]
        assert 'reviewer changed the arguments to {"text":"y"}' in told and "echo y" in told
        (call,) = run.calls.values()
        assert call.approval is not None and call.approval.decision is not None
        assert call.started is not None
        assert call.approval.decision.digest == call.started.digest
        assert call.approval.request.digest != call.started.digest


async def test_edit_that_breaks_the_schema_is_refused_and_stays_pending(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        with pytest.raises(InvalidInput, match="must be a string"):
            await talk.decide(approval_id, edited_arguments={"text": 1})
        assert await talk.approvals("r1") == [approval_id]
        await talk.decide(approval_id)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


async def test_edit_of_a_call_whose_tool_is_gone_is_refused(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        del talk.tools.tools["Mail-send"]
        with pytest.raises(InvalidInput, match="no tool named Mail-send any more"):
            await talk.decide(approval_id, edited_arguments={"text": "y"})
        assert await talk.approvals("r1") == [approval_id]


async def test_edit_that_policy_denies_is_forbidden_and_stays_pending(tmp_path: Path) -> None:
    def rule(call: ToolCall) -> Verdict | None:
        return "deny" if call.arguments.get("text") == "evil" else None

    async with talking(tmp_path, script=SEND_X, policy=FakePolicy(rule)) as talk:
        approval_id = await waiting(talk)
        with pytest.raises(Forbidden):
            await talk.decide(approval_id, edited_arguments={"text": "evil"})
        assert await talk.approvals("r1") == [approval_id]
        assert talk.tools.started == []


async def test_echoed_digest_must_be_the_one_shown(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        asked = next(e for e in await talk.log() if isinstance(e, ApprovalRequested))
        assert asked.shown == {"tool_name": "Mail-send", "arguments": {"text": "x"}}
        with pytest.raises(ApprovalMismatch):
            await talk.decide(approval_id, digest="0" * 64)
        assert await talk.approvals("r1") == [approval_id]
        await talk.decide(approval_id, digest=asked.digest)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


@requirement("S000-request-idempotency-execution")
async def test_many_decisions_at_once_run_the_tool_once(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        outcomes = await asyncio.gather(
            *(talk.decide(approval_id, approved=n % 2 == 0) for n in range(16)),
            return_exceptions=True,
        )
        assert [o for o in outcomes if o is True] == [True]
        refused = [o for o in outcomes if o is not True]
        assert all(isinstance(o, ApprovalAlreadyDecided) for o in refused)
        await talk.ended("r1")
        decided = [e for e in await talk.log() if isinstance(e, ApprovalDecided)]
        assert len(decided) == 1
        assert {o.outcome for o in refused} == {decided[0].outcome}  # type: ignore[union-attr]
        assert len(talk.tools.started) == (decided[0].outcome == "approved")


async def test_same_idempotency_key_is_answered_again_without_a_second_run(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        answers = await asyncio.gather(
            *(talk.decide(approval_id, idempotency_key="k") for _ in range(8))
        )
        assert sorted(answers) == [False] * 7 + [True]
        await talk.ended("r1")
        assert await talk.decide(approval_id, idempotency_key="k") is False
        with pytest.raises(ApprovalAlreadyDecided):
            await talk.decide(approval_id, idempotency_key="other")
        assert len(talk.tools.started) == 1


@pytest.mark.parametrize("stranger", [{"user_id": "bob"}, {"run_id": "r2"}, {"thread_id": "u"}])
async def test_approval_of_another_user_run_or_thread_is_not_found(
    tmp_path: Path, stranger: dict[str, str]
) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        with pytest.raises(ApprovalNotFound):
            await talk.decide(approval_id, **stranger)
        with pytest.raises(ApprovalNotFound):
            await talk.decide("approval_guessed")
        assert await talk.approvals("r1") == [approval_id]


@pytest.mark.parametrize("scope", ["run", "thread"])
async def test_remembered_approval_lets_later_calls_run_and_is_cited(
    tmp_path: Path, scope: Literal["run", "thread"]
) -> None:
    again = calls(("Mail-send", {"text": "y"}))
    script = [*SEND_X[:1], again, says("one"), again, says("two")]
    async with talking(tmp_path, script=script) as talk:
        await talk.decide(await waiting(talk), remember=scope)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        second = await talk.ask("more")
        state = await talk.until(lambda state: True)
        (grant_id,) = state.grants
        started = [e for e in await talk.log() if isinstance(e, ToolStarted)]
        assert [e.grant_id for e in started][:2] == [None, grant_id]
        if scope == "thread":
            assert second.status is RunStatus.COMPLETED
            assert started[2].grant_id == grant_id
        else:
            assert second.status is RunStatus.WAITING
            assert len(started) == 2


async def test_remembered_approval_does_not_cover_the_tool_once_it_was_changed(
    tmp_path: Path,
) -> None:
    again = calls(("Mail-send", {"text": "y"}))
    script = [*SEND_X[:1], says("one"), again, says("two"), again, says("three")]
    async with talking(tmp_path, script=script) as talk:
        await talk.decide(await waiting(talk), remember="thread")
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        talk.tools.redefine("Mail-send", "d2")
        assert (await talk.ask("more", run_id="r2")).status is RunStatus.WAITING
        (approval_id,) = await talk.approvals("r2")
        await talk.decide(approval_id, run_id="r2", remember="thread")
        assert (await talk.ended("r2")).status is RunStatus.COMPLETED
        assert (await talk.ask("and more")).status is RunStatus.COMPLETED
        first, of_changed = (await talk.until(lambda state: True)).grants
        started = [e for e in await talk.log() if isinstance(e, ToolStarted)]
        assert [e.grant_id for e in started] == [None, None, of_changed]
        assert first != of_changed


async def test_four_refusals_are_told_apart(tmp_path: Path) -> None:
    def rule(call: ToolCall) -> Verdict | None:
        return "deny" if call.arguments.get("text") == "policy" else None

    texts = ("human", "policy", "timeout", "cancel")
    script = [*(calls(("Mail-send", {"text": text})) for text in texts)]
    clock = SettableClock()
    limits = RunLimits(approval_seconds=3600)
    async with talking(
        tmp_path,
        script=script,
        policy=FakePolicy(rule),
        clock=clock,
        limits=limits,
        lease_ttl=UNSWEPT,
    ) as talk:
        await talk.decide(await waiting(talk), approved=False)
        await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        (overdue,) = await talk.approvals("r1")
        clock.advance(3601)
        with pytest.raises(ApprovalExpired):
            await talk.decide(overdue)
        await talk.sweep()
        await talk.until(is_asked_anew(overdue))
        with pytest.raises(ApprovalExpired):
            await talk.decide(overdue)
        await talk.cancel("r1")
        run = await talk.ended("r1")
        finished = [call.finished for call in run.calls.values() if call.finished]
        assert [event.by for event in finished] == list(texts)
        assert [event.outcome for event in finished] == ["refused", "refused", "refused", "sealed"]
        assert len({event.result for event in finished}) == 4
        assert talk.tools.started == []


@requirement("S004-6.1-rejection")
@pytest.mark.parametrize("others", [0, 2])
async def test_rejection_ends_the_run_of_an_agent_that_says_so(tmp_path: Path, others: int) -> None:
    more = [("Mail-send", {"text": str(n)}) for n in range(others)]
    script = [calls(("Mail-send", {"text": "x"}), *more), says("next answer")]
    async with talking(tmp_path, script=script, on_reject="cancel") as talk:
        await talk.ask()
        first, *rest = await talk.approvals("r1")
        await talk.decide(first, approved=False)
        run = await talk.ended("r1")
        assert run.status is RunStatus.CANCELLED
        assert [call.finished.by for call in run.calls.values() if call.finished] == ["human"] * (
            1 + others
        )
        for approval_id in rest:
            with pytest.raises(ApprovalAlreadyDecided) as refused:
                await talk.decide(approval_id)
            assert refused.value.outcome == "withdrawn"
        assert (await talk.ask("next")).status is RunStatus.COMPLETED
        assert talk.tools.started == []
        assert problems(talk.prompts[-1]) == []


async def test_rejection_goes_on_by_default(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        await talk.decide(await waiting(talk), approved=False)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


async def test_tool_that_changed_since_it_was_shown_never_runs_and_is_asked_anew(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        talk.tools.redefine("Mail-send", "d2")
        await talk.decide(approval_id, idempotency_key="k")
        await talk.until(is_asked_anew(approval_id))
        assert talk.tools.started == []
        with pytest.raises(ApprovalAlreadyDecided) as refused:
            await talk.decide(approval_id)
        assert refused.value.outcome == "withdrawn"
        assert await talk.decide(approval_id, idempotency_key="k") is False
        (anew,) = await talk.approvals("r1")
        await talk.decide(anew)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert len(talk.tools.started) == 1


async def test_tool_that_is_gone_does_not_break_the_conversation(tmp_path: Path) -> None:
    two = [calls(("Mail-send", {}), ("Mail-send", {})), says("done")]
    async with talking(tmp_path, script=two) as talk:
        await talk.ask()
        first, second = await talk.approvals("r1")
        gone = talk.tools.tools.pop("Mail-send")
        await talk.decide(first)
        await talk.until(lambda state: len(state.run("r1").unresolved_calls) == 1)
        assert await talk.approvals("r1") == [second]
        await talk.decide(second, approved=False)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert "no tool named Mail-send any more" in talk.prompts[1][-2]["content"]
        assert gone and talk.tools.started == []


async def test_call_that_policy_denies_is_refused_without_asking(tmp_path: Path) -> None:
    policy = FakePolicy(lambda call: "deny")
    async with talking(tmp_path, script=SEND_X, policy=policy, http=True) as talk:
        assert (await talk.ask()).status is RunStatus.COMPLETED
        assert "not allowed by policy" in talk.prompts[1][-1]["content"]
        assert talk.tools.started == []


async def test_approved_call_that_policy_denies_by_now_does_not_run(tmp_path: Path) -> None:
    policy = FakePolicy()
    async with talking(tmp_path, script=SEND_X, policy=policy) as talk:
        approval_id = await waiting(talk)
        policy.rule = lambda call: "deny"
        await talk.decide(approval_id)
        run = await talk.ended("r1")
        (call,) = run.calls.values()
        assert call.finished is not None and call.finished.by == "policy"
        assert talk.tools.started == []


@requirement("S004-4.2-others-continue")
async def test_other_conversations_go_on_while_one_waits(tmp_path: Path) -> None:
    async with talking(tmp_path, script=[*SEND_X[:1], says("other"), says("done")]) as talk:
        approval_id = await waiting(talk)
        other = await talk.ask(thread="another")
        assert other.status is RunStatus.COMPLETED
        await talk.decide(approval_id)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED


@requirement("S004-4.2-parked")
async def test_waiting_run_holds_no_lease_and_survives_a_restart(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X[:1]) as talk:
        approval_id = await waiting(talk)
        await talk.parked()
    async with talking(tmp_path, script=SEND_X[1:], owner="b") as talk:
        assert await talk.approvals("r1") == [approval_id]
        await talk.decide(approval_id)
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == [("Mail-send", {"text": "x"})]


async def test_clock_a_day_ahead_at_one_instance_expires_nobody_s_approval(tmp_path: Path) -> None:
    right, ahead = SettableClock(), SettableClock()
    ahead.set_wall(right.now() + timedelta(hours=25))
    limits = RunLimits(approval_seconds=86_400)
    there = Setup([says("done")], clock=ahead, limits=limits, lease_ttl=UNSWEPT)
    here = Setup(SEND_X, clock=right, limits=limits, lease_ttl=UNSWEPT)
    async with talking(tmp_path, here) as a, talking(tmp_path, there, owner="b") as b:
        approval_id = await waiting(a)
        await a.parked()
        await b.sweep()
        assert await a.approvals("r1") == [approval_id]
        # Nor is a yes late because it is given there.
        await b.decide(approval_id)
        await b.ended("r1")
        assert len(b.tools.started) == 1


async def test_clock_that_is_moved_expires_nothing_before_its_time(tmp_path: Path) -> None:
    clock = SettableClock()
    setup = Setup(SEND_X, clock=clock, limits=RunLimits(approval_seconds=86_400), lease_ttl=UNSWEPT)
    async with talking(tmp_path, setup) as talk:
        await waiting(talk)
        await talk.parked()
        clock.set_wall(clock.now() + timedelta(days=2))
        await talk.sweep()
        assert len(await talk.approvals("r1")) == 1
        clock.advance(86_399)
        await talk.sweep()
        assert len(await talk.approvals("r1")) == 1
        clock.advance(1)
        await talk.sweep()
        await talk.ended("r1")
        assert talk.tools.started == []


@pytest.mark.parametrize(
    ("asked", "uptime", "expires"),
    [(100.0, 3_699.0, False), (100.0, 3_700.0, True), (9e6, 3_599.0, False), (9e6, 3_600.0, True)],
    ids=["soon", "late", "soon after a restart", "late after a restart"],
)
def test_lifetime_is_measured_by_the_clock_of_the_host(
    asked: float, uptime: float, expires: bool
) -> None:
    clock = SettableClock()
    request = ApprovalRequested(
        approval_id="a",
        call_id="c",
        digest="d",
        shown={},
        at=clock.now(),
        expires_at=clock.now() + timedelta(hours=1),
        asked_uptime=asked,
    )
    clock.advance(uptime - clock.monotonic())
    assert has_passed(Approval(request), clock) is expires


def test_older_approval_that_does_not_say_when_it_was_asked_goes_by_the_wall_clock() -> None:
    clock = SettableClock()
    request = ApprovalRequested(approval_id="a", call_id="c", digest="d", shown={}, at=clock.now())
    expiring = request.model_copy(update={"expires_at": clock.now() + timedelta(hours=1)})
    assert has_passed(Approval(expiring), clock)
    assert has_passed(Approval(request.model_copy(update={"asked_uptime": 9e6})), clock)
