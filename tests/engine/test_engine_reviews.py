"""Others than the requester decide about a call: by votes, with one outcome, never with too few."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sk_agents.engine.calls import reviews
from sk_agents.engine.commands import WithdrawVote
from sk_agents.engine.events import (
    ApprovalDecided,
    ApprovalRequested,
    GrantChanged,
    ReviewExtended,
    VoteCast,
    VoteWithdrawn,
)
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import Audience, Effect, Review, RunStatus, ToolCall
from sk_agents.engine.threads.catalog import RACES
from sk_agents.engine.turns import ToolContext, ToolSpec
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    ApprovalNotFound,
    ApprovalWithdrawn,
    Conflict,
    Forbidden,
    InvalidInput,
    NotApprover,
    SequenceConflict,
    StateCorrupt,
    TealError,
    ToolInterrupted,
    VoteNotFound,
)
from sk_agents.testing import SettableClock
from sk_agents.testing.scripted_model import calls, says
from tests.engine.fake_tools import FakePolicy, FakeTools, tool
from tests.engine.kit import (
    BOUND,
    SEND_X,
    UNSWEPT,
    USER,
    Setup,
    Talk,
    is_asked_anew,
    talking,
    waiting,
)
from tests.engine.troubled_store import TroubledStore

FINANCE = frozenset({"group:finance"})
TWO = Review(audience=Audience(groups=("finance",)), quorum=2, not_requester=True)


def reviewed(review: Review = TWO, **fields: Any) -> dict[str, Any]:
    return {"script": SEND_X, "policy": FakePolicy(wanted_review=review), **fields}


async def vote(talk: Talk, approval_id: str, user: str, **fields: Any) -> bool:
    fields.setdefault("memberships", FINANCE)
    return await talk.decide(approval_id, user_id=user, user_name=user.title(), **fields)


async def missing(talk: Talk) -> int:
    run = fold(await talk.log()).run("r1")
    (call,) = run.calls.values()
    assert call.approval is not None
    return call.approval.missing


async def test_call_runs_once_as_many_as_asked_have_said_yes(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        assert await vote(talk, approval_id, "bob") is True
        assert talk.tools.started == [] and await missing(talk) == 1
        assert (await talk.store.thread("t")).status == "waiting"
        assert await vote(talk, approval_id, "eve", message="fine") is True
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == [("Mail-send", {"text": "x"})]
        log = await talk.log()
        said = [event for event in log if isinstance(event, VoteCast)]
        assert [(one.voter, one.voter_name, one.right) for one in said] == [
            ("bob", "Bob", "group:finance"),
            ("eve", "Eve", "group:finance"),
        ]
        (decided,) = [event for event in log if isinstance(event, ApprovalDecided)]
        assert decided.seq == said[1].seq + 1 and decided.at == said[1].at
        assert (decided.decided_by, decided.decided_by_name) == ("eve", "Eve")


async def test_one_no_rejects_and_the_model_learns_whose_it_was(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        await vote(talk, approval_id, "eve", approved=False, message="too much")
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == []
        assert "Rejected by Eve: too much." in talk.prompts[1][-1]["content"]
        with pytest.raises(ApprovalAlreadyDecided):
            await vote(talk, approval_id, "dan")


async def test_second_yes_of_one_person_counts_once(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        assert await vote(talk, approval_id, "bob") is True
        for fields in ({}, {"idempotency_key": "k"}, {"message": "again"}):
            assert await vote(talk, approval_id, "bob", **fields) is False
        assert await missing(talk) == 1
        assert len([e for e in await talk.log() if isinstance(e, VoteCast)]) == 1


async def test_vote_sent_again_with_its_key_is_answered_after_the_decision(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob", idempotency_key="k")
        await vote(talk, approval_id, "eve")
        await talk.ended("r1")
        assert await vote(talk, approval_id, "bob", idempotency_key="k") is False


async def test_no_after_a_yes_replaces_it(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        await vote(talk, approval_id, "bob", approved=False)
        await talk.ended("r1")
        assert talk.tools.started == []


async def test_no_after_a_yes_may_be_repeated_with_its_own_key(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        assert await vote(talk, approval_id, "bob", idempotency_key="yes")
        for is_first in (True, False):
            no = await vote(talk, approval_id, "bob", approved=False, idempotency_key="no")
            assert no is is_first


async def test_withdrawn_vote_does_not_count(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        await talk.engine.withdraw_vote(WithdrawVote(approval_id, "bob", memberships=FINANCE))
        await vote(talk, approval_id, "eve")
        assert await missing(talk) == 1 and talk.tools.started == []
        with pytest.raises(VoteNotFound):
            await talk.engine.withdraw_vote(WithdrawVote(approval_id, "bob", memberships=FINANCE))
        await vote(talk, approval_id, "bob")
        await talk.ended("r1")
        assert len(talk.tools.started) == 1
        withdrawn = [e for e in await talk.log() if isinstance(e, VoteWithdrawn)]
        assert [event.voter for event in withdrawn] == ["bob"]
        with pytest.raises(ApprovalAlreadyDecided):
            await talk.engine.withdraw_vote(WithdrawVote(approval_id, "bob", memberships=FINANCE))


@pytest.mark.parametrize("changes", [1, RACES])
async def test_vote_is_withdrawn_although_the_chat_changes_meanwhile(changes: int) -> None:
    store = TroubledStore()
    async with talking(store, **reviewed()) as talk:
        approval_id = await waiting(talk)
        await talk.parked()
        await vote(talk, approval_id, "bob")
        store.before_commit = [SequenceConflict() for _ in range(changes)]
        back = talk.engine.withdraw_vote(WithdrawVote(approval_id, "bob", memberships=FINANCE))
        if changes < RACES:
            await back
        else:
            with pytest.raises(Conflict) as refused:
                await back
            assert type(refused.value) is Conflict
        assert await missing(talk) == (2 if changes < RACES else 1)


async def test_requester_may_not_vote_on_their_own_call(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        for approved in (True, False):
            with pytest.raises(NotApprover, match="person who asked"):
                await vote(talk, approval_id, USER, approved=approved)
        assert await talk.approvals("r1") == [approval_id]


async def test_requester_who_is_in_the_audience_may_vote_unless_the_rule_forbids_it(
    tmp_path: Path,
) -> None:
    alone = Review(audience=Audience(groups=("finance",)))
    async with talking(tmp_path, **reviewed(alone)) as talk:
        approval_id = await waiting(talk)
        with pytest.raises(NotApprover):
            await vote(talk, approval_id, USER, memberships=frozenset())
        await vote(talk, approval_id, USER)
        await talk.ended("r1")
        assert len(talk.tools.started) == 1


async def test_approval_does_not_exist_for_a_person_whom_it_does_not_concern(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        sales = frozenset({"group:sales", "role:approver", "user:bob"})
        for made_up in (frozenset(), sales - {"user:bob"}, frozenset({"finance"})):
            with pytest.raises(ApprovalNotFound):
                await vote(talk, approval_id, "mallory", memberships=made_up)
            with pytest.raises(ApprovalNotFound):
                await talk.engine.catalog.asked(approval_id, "mallory", made_up)
            with pytest.raises(ApprovalNotFound):
                command = WithdrawVote(approval_id, "mallory", memberships=made_up)
                await talk.engine.withdraw_vote(command)
            page = await talk.engine.catalog.inbox("mallory", made_up, after=None, limit=10)
            assert page.items == []


async def test_approval_of_the_requester_alone_does_not_exist_for_others(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        approval_id = await waiting(talk)
        with pytest.raises(ApprovalNotFound):
            await vote(talk, approval_id, "bob")


async def test_requester_has_no_vote_to_withdraw(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X) as talk:
        with pytest.raises(NotApprover):
            await talk.engine.withdraw_vote(WithdrawVote(await waiting(talk), USER))


async def test_voter_who_lost_the_right_cannot_vote_again_and_the_vote_stays(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        for approved in (True, False):
            with pytest.raises(NotApprover):
                await vote(talk, approval_id, "bob", approved=approved, memberships=frozenset())
        assert await missing(talk) == 1
        await talk.engine.withdraw_vote(WithdrawVote(approval_id, "bob"))
        assert await missing(talk) == 2


async def test_right_is_judged_when_the_vote_is_cast(tmp_path: Path) -> None:
    both = Review(audience=Audience(roles=("approver",), users=("dan",)), quorum=2)
    async with talking(tmp_path, **reviewed(both)) as talk:
        approval_id = await waiting(talk)
        with pytest.raises(ApprovalNotFound):
            await vote(talk, approval_id, "bob")
        await vote(talk, approval_id, "bob", memberships=frozenset({"role:approver"}))
        await vote(talk, approval_id, "dan", memberships=frozenset())
        await talk.ended("r1")
        rights = [e.right for e in await talk.log() if isinstance(e, VoteCast)]
        assert rights == ["role:approver", "user:dan"] and len(talk.tools.started) == 1


async def test_vote_after_its_time_is_refused_and_the_call_with_it(tmp_path: Path) -> None:
    clock = SettableClock()
    brief = TWO.model_copy(update={"lifetime": 60.0})
    async with talking(tmp_path, **reviewed(brief, clock=clock, lease_ttl=UNSWEPT)) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        clock.advance(61)
        with pytest.raises(ApprovalExpired):
            await vote(talk, approval_id, "eve")
        await talk.sweep()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == []
        with pytest.raises(ApprovalExpired):
            await vote(talk, approval_id, "eve")
        page = await talk.engine.catalog.inbox("eve", FINANCE, after=None, limit=10)
        assert page.items == []


async def test_held_review_waits_on_without_a_limit(tmp_path: Path) -> None:
    clock = SettableClock()
    held = TWO.model_copy(update={"lifetime": 60.0, "on_expiry": "hold"})
    async with talking(tmp_path, **reviewed(held, clock=clock, lease_ttl=UNSWEPT)) as talk:
        approval_id = await waiting(talk)
        clock.advance(61)
        # Before the sweeper has seen that its time is over, and after.
        await vote(talk, approval_id, "bob")
        await talk.sweep()
        await talk.sweep()
        clock.advance(1_000_000)
        await talk.sweep()
        assert await talk.approvals("r1") == [approval_id]
        await vote(talk, approval_id, "eve")
        await talk.ended("r1")
        assert len(talk.tools.started) == 1
        assert len([e for e in await talk.log() if isinstance(e, ReviewExtended)]) == 1


async def test_escalated_review_is_the_other_group_s_and_expires_at_last(tmp_path: Path) -> None:
    clock = SettableClock()
    late = TWO.model_copy(
        update={"lifetime": 60.0, "on_expiry": "escalate", "escalate_to": "board"}
    )
    board = frozenset({"group:board"})
    async with talking(tmp_path, **reviewed(late, clock=clock, lease_ttl=UNSWEPT)) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        clock.advance(61)
        await talk.sweep()
        with pytest.raises(ApprovalNotFound):
            await vote(talk, approval_id, "eve")
        assert (await talk.engine.catalog.inbox("eve", FINANCE, after=None, limit=9)).items == []
        (waits,) = (await talk.engine.catalog.inbox("cat", board, after=None, limit=9)).items
        assert waits.approval.audience.groups == ("board",) and waits.approval.missing == 1
        with pytest.raises(NotApprover, match="person who asked"):
            await vote(talk, approval_id, USER, memberships=board)
        clock.advance(59)
        await talk.sweep()
        assert await talk.approvals("r1") == [approval_id]
        clock.advance(2)
        await talk.sweep()
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert talk.tools.started == []


async def test_vote_of_the_group_it_was_escalated_to_completes_the_others(tmp_path: Path) -> None:
    clock = SettableClock()
    late = TWO.model_copy(
        update={"lifetime": 60.0, "on_expiry": "escalate", "escalate_to": "board"}
    )
    async with talking(tmp_path, **reviewed(late, clock=clock, lease_ttl=UNSWEPT)) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        clock.advance(61)
        await talk.sweep()
        await vote(talk, approval_id, "cat", memberships=frozenset({"group:board"}))
        await talk.ended("r1")
        assert len(talk.tools.started) == 1


@pytest.mark.parametrize(("review", "missing"), [(TWO, 2), (Review(lifetime=60.0), 0)])
async def test_votes_are_missing_only_where_others_decide(
    tmp_path: Path, review: Review, missing: int
) -> None:
    async with talking(tmp_path, **reviewed(review)) as talk:
        await waiting(talk)
        state = await talk.until(lambda state: bool(state.run("r1").pending_approvals))
        assert [one.missing for one in state.run("r1").pending_approvals] == [missing]


async def test_requester_who_does_not_answer_in_time_loses_the_decision_to_a_group(
    tmp_path: Path,
) -> None:
    clock = SettableClock()
    own = Review(lifetime=60.0, on_expiry="escalate", escalate_to="board")
    async with talking(tmp_path, **reviewed(own, clock=clock, lease_ttl=UNSWEPT)) as talk:
        approval_id = await waiting(talk)
        clock.advance(61)
        await talk.sweep()
        with pytest.raises(NotApprover):
            await talk.decide(approval_id)
        await vote(talk, approval_id, "cat", memberships=frozenset({"group:board"}))
        await talk.ended("r1")
        assert len(talk.tools.started) == 1


async def test_vote_after_a_cancel_is_refused(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        await talk.cancel("r1")
        with pytest.raises((ApprovalWithdrawn, ApprovalAlreadyDecided)):
            await vote(talk, approval_id, "eve")
        assert (await talk.ended("r1")).status is RunStatus.CANCELLED
        assert talk.tools.started == []
        page = await talk.engine.catalog.inbox("eve", FINANCE, after=None, limit=10)
        assert page.items == []


async def test_edit_is_refused_where_several_decide(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        with pytest.raises(InvalidInput, match="as it is shown"):
            await vote(talk, approval_id, "bob", edited_arguments={"text": "y"})
        assert await missing(talk) == 2


async def test_one_approver_may_edit(tmp_path: Path) -> None:
    one = Review(audience=Audience(groups=("finance",)), not_requester=True)
    async with talking(tmp_path, **reviewed(one)) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob", edited_arguments={"text": "y"})
        await talk.ended("r1")
        assert talk.tools.started == [("Mail-send", {"text": "y"})]


class LargeOnesAreReviewed(FakePolicy):
    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        return TWO if call.arguments.get("text") == "large" else None


async def test_requester_cannot_edit_a_call_into_one_that_others_decide_about(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, script=SEND_X, policy=LargeOnesAreReviewed()) as talk:
        approval_id = await waiting(talk)
        with pytest.raises(Forbidden, match="Other people decide"):
            await talk.decide(approval_id, edited_arguments={"text": "large"})
        assert await talk.approvals("r1") == [approval_id]


WHY = Review(reason_required=True)


class LargeOnesNeedAReason(FakePolicy):
    def review(self, call: ToolCall, spec: ToolSpec) -> Review | None:
        return WHY if call.arguments.get("text") == "large" else None


async def test_call_that_needs_a_reason_is_decided_with_one_and_not_for_good(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path, **reviewed(WHY)) as talk:
        approval_id = await waiting(talk)
        for approved in (True, False):
            for message in (None, "", " \n"):
                with pytest.raises(InvalidInput, match="wants a reason") as refused:
                    await talk.decide(approval_id, approved=approved, message=message)
                (error,) = refused.value.members["errors"]
                assert error["loc"] == ["body", "message"]
        with pytest.raises(InvalidInput, match="each time"):
            await talk.decide(approval_id, message="it is due", remember="thread")
        assert await talk.approvals("r1") == [approval_id]
        await talk.decide(approval_id, message="it is due")
        await talk.ended("r1")
        assert len(talk.tools.started) == 1


async def test_call_cannot_be_edited_into_one_that_needs_a_reason(tmp_path: Path) -> None:
    async with talking(tmp_path, script=SEND_X, policy=LargeOnesNeedAReason()) as talk:
        approval_id = await waiting(talk)
        with pytest.raises(Forbidden, match="Another rule"):
            await talk.decide(approval_id, edited_arguments={"text": "large"})
        assert await talk.approvals("r1") == [approval_id]


async def test_review_is_nothing_to_people_whom_it_does_not_concern(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        await waiting(talk)
        (call,) = fold(await talk.log()).run("r1").calls.values()
        assert call.approval is not None
        with pytest.raises(ApprovalNotFound):
            reviews.right_to_vote(call.approval, USER, "mallory", frozenset({"group:sales"}))


async def test_standing_approval_does_not_stand_for_others(tmp_path: Path) -> None:
    script = [
        calls(("Mail-send", {"text": "x"})),
        calls(("Mail-send", {"text": "large"})),
        says("done"),
    ]
    async with talking(tmp_path, script=script, policy=LargeOnesAreReviewed()) as talk:
        approval_id = await waiting(talk)
        await talk.decide(approval_id, remember="thread")
        await talk.until(is_asked_anew(approval_id))
        assert talk.tools.started == [("Mail-send", {"text": "x"})]
        (second,) = await talk.approvals("r1")
        with pytest.raises(NotApprover):
            await talk.decide(second)
        with pytest.raises(InvalidInput, match="each time"):
            await vote(talk, second, "bob", remember="thread")
        assert len([e for e in await talk.log() if isinstance(e, GrantChanged)]) == 1


async def test_header_of_a_voter_does_not_reach_the_requester_s_tools(tmp_path: Path) -> None:
    send = tool("Mail-send", effect=Effect.AT_MOST_ONCE)
    send.spec = replace(send.spec, requires_authorization=True)
    one = Review(audience=Audience(groups=("finance",)))
    async with talking(tmp_path, **reviewed(one, tools=FakeTools(send))) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob", authorization="Bearer of-bob")
        state = await talk.until(is_asked_anew(approval_id))
        (asked,) = state.run("r1").pending_approvals
        assert asked.request.kind == "auth" and asked.audience.keys == ()
        with pytest.raises(ApprovalNotFound):
            await vote(talk, asked.request.approval_id, "bob", authorization="Bearer of-bob")
        await talk.decide(asked.request.approval_id, authorization="Bearer of-ada")
        await talk.ended("r1")
        assert len(talk.tools.started) == 1


async def test_call_is_asked_about_again_if_the_rule_has_become_another(tmp_path: Path) -> None:
    setup = Setup(**reviewed())
    async with talking(tmp_path, setup) as talk:
        approval_id = await waiting(talk)
        setup.policy.wanted_review = TWO.model_copy(update={"quorum": 3})
        await vote(talk, approval_id, "bob")
        await vote(talk, approval_id, "eve")
        state = await talk.until(is_asked_anew(approval_id))
        (asked,) = state.run("r1").pending_approvals
        assert asked.missing == 3 and talk.tools.started == []


async def test_stored_review_that_was_made_easier_lets_nothing_run(tmp_path: Path) -> None:
    setup = Setup(**reviewed())
    async with talking(tmp_path, setup) as talk:
        approval_id = await waiting(talk)
        easier = TWO.model_copy(update={"quorum": 1})
        (call,) = (await talk.engine.thread("t", USER)).state.run("r1").calls.values()
        assert call.approval is not None
        # As if the record had been changed: the digest is the old one.
        call.approval.request = call.approval.request.model_copy(update={"review": easier})
        await vote(talk, approval_id, "bob")
        asked: list[ApprovalRequested] = []
        async with asyncio.timeout(BOUND):
            async for items in talk.engine.watch("t"):
                asked += [item for item in items if isinstance(item, ApprovalRequested)]
                if len(asked) == 2:
                    break
        assert asked[1].review is not None and asked[1].review.quorum == 2
        assert talk.tools.started == []


async def test_unknown_outcome_of_a_reviewed_call_cannot_be_retried_by_its_requester(
    tmp_path: Path,
) -> None:
    def break_off(_arguments: dict[str, Any], _context: ToolContext) -> str:
        raise ToolInterrupted

    send = tool("Mail-send", break_off, effect=Effect.AT_MOST_ONCE)
    one = Review(audience=Audience(groups=("finance",)))
    async with talking(tmp_path, **reviewed(one, tools=FakeTools(send))) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        state = await talk.until(is_asked_anew(approval_id))
        (asked,) = state.run("r1").pending_approvals
        assert asked.request.kind == "outcome_unknown"
        assert asked.request.choices == ("done", "give_up")
        unknown = asked.request.approval_id
        with pytest.raises(InvalidInput, match="one of done, give_up"):
            await talk.decide(unknown, choice="retry")
        await talk.decide(unknown, choice="done")
        assert (await talk.ended("r1")).status is RunStatus.COMPLETED
        assert len(talk.tools.started) == 1


async def test_log_that_runs_a_call_with_too_few_votes_is_damaged(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        await vote(talk, approval_id, "bob")
        log = await talk.log()
        asked = next(event for event in log if isinstance(event, ApprovalRequested))

        def forged(**fields: Any) -> ApprovalDecided:
            return ApprovalDecided(
                seq=len(log) + 1,
                run_id="r1",
                approval_id=approval_id,
                call_id=asked.call_id,
                outcome="approved",
                by="human",
                **fields,
            )

        assert asked.review is not None
        with pytest.raises(StateCorrupt, match="not enough votes"):
            fold([*log, forged(audience=asked.review.audience)])
        with pytest.raises(StateCorrupt, match="another audience"):
            fold([*log, forged()])


async def test_log_that_leaves_a_call_in_an_inbox_is_damaged(tmp_path: Path) -> None:
    async with talking(tmp_path, **reviewed()) as talk:
        approval_id = await waiting(talk)
        log = await talk.log()
        asked = next(event for event in log if isinstance(event, ApprovalRequested))
        board, finance = Audience(groups=("board",)), Audience(groups=("finance",))
        extended = ReviewExtended(
            seq=len(log) + 1,
            run_id="r1",
            approval_id=approval_id,
            call_id=asked.call_id,
            audience=board,
            left=finance,
        )
        fold([*log, extended])
        with pytest.raises(StateCorrupt, match="unnamed"):
            fold([*log, extended.model_copy(update={"left": Audience()})])
        with pytest.raises(StateCorrupt, match="twice"):
            fold([*log, extended, extended.model_copy(update={"seq": extended.seq + 1})])


async def test_inbox_holds_own_and_others_calls_the_oldest_first(tmp_path: Path) -> None:
    clock = SettableClock()
    wide = Review(audience=Audience(roles=("approver",), groups=("finance",), users=("bob",)))
    mine = FINANCE | {"role:approver"}
    script = [calls(("Mail-send", {"text": str(number)})) for number in range(7)]
    async with talking(
        tmp_path, **reviewed(wide, script=script, clock=clock, lease_ttl=UNSWEPT)
    ) as talk:
        for number in range(7):
            owner = "bob" if number % 3 == 0 else USER
            await talk.ask(thread=f"t{number}", user_id=owner)
            clock.advance(1)
        pages: list[list[str]] = []
        after = None
        while len(pages) < 9:
            page = await talk.engine.catalog.inbox("bob", mine, after=after, limit=3)
            pages.append([asked.thread.thread_id for asked in page.items])
            after = page.after
            if after is None:
                break
        assert pages == [["t0", "t1", "t2"], ["t3", "t4", "t5"], ["t6"]]


async def outcomes_of(attempts: Sequence[Any]) -> list[Any]:
    found = await asyncio.gather(*attempts, return_exceptions=True)
    assert all(isinstance(one, TealError | bool | RunStatus) for one in found), found
    return found


@pytest.mark.usefixtures("readers_look")
@pytest.mark.parametrize("disturbed", ["not", "cancel", "no"])
async def test_votes_at_three_engines_have_one_outcome(tmp_path: Path, disturbed: str) -> None:
    async with AsyncExitStack() as stack:
        setup = Setup(**reviewed())
        talks = [
            await stack.enter_async_context(talking(tmp_path, setup, owner=owner))
            for owner in ("a", "b", "c")
        ]
        approval_id = await waiting(talks[0])
        attempts = [
            vote(talks[number % 3], approval_id, f"voter{number % 4}") for number in range(9)
        ]
        if disturbed == "cancel":
            attempts.insert(4, talks[1].cancel("r1"))  # type: ignore[arg-type]  # gathered alike
        if disturbed == "no":
            attempts.insert(4, vote(talks[2], approval_id, "eve", approved=False))
        await outcomes_of(attempts)
        run = await talks[0].ended("r1")
        (call,) = run.calls.values()
        assert call.approval is not None and call.approval.decision is not None
        votes = [vote for vote in call.approval.votes.values() if vote.approved]
        ran = len(setup.tools.started)
        assert ran == (call.approval.decision.outcome == "approved")
        assert not ran or len(votes) >= 2
        decided = [e for e in await talks[0].log() if isinstance(e, ApprovalDecided)]
        assert len(decided) == 1
