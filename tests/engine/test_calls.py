"""A tool call's life: proposed, asked about, run, resolved."""

import pytest
from hypothesis import given

from sk_agents.engine.calls.call import Call
from sk_agents.engine.events import Event, LateResult, ToolStarted, VoteWithdrawn
from sk_agents.engine.log.state import Run, fold
from sk_agents.engine.models import ApprovalState, CallState, Review, RunStatus, ThreadStatus
from sk_agents.exceptions import StateCorrupt
from tests.engine.builders import (
    FINANCE,
    Choice,
    Outcome,
    asked,
    cancel_requested,
    decided,
    ended,
    finished,
    late,
    log,
    outcome_unknown,
    proposed,
    started,
    tool_started,
    turn,
    voted,
)
from tests.engine.histories import legal_logs
from tests.requirements import requirement

LOST: list[Event] = [started(), proposed(), tool_started(), outcome_unknown()]
ASKED_IF_DONE: list[Event] = [*LOST, asked("a2", kind="outcome_unknown")]


def run_after(*events: Event) -> Run:
    return fold(log(*events)).runs["r1"]


def call_after(*events: Event) -> Call:
    return run_after(*events).calls["c1"]


def approval_state(call: Call) -> ApprovalState:
    assert call.approval is not None
    return call.approval.state


def test_free_call_runs_and_keeps_its_result() -> None:
    call = call_after(started(), proposed(), tool_started(), finished(result="ok"))
    assert call.state is CallState.FINISHED
    assert call.finished is not None and call.finished.result == "ok"


def test_call_that_cannot_run_gets_its_error_without_starting() -> None:
    call = call_after(started(), proposed(problem="no such tool"), finished(outcome="error"))
    assert (call.state, call.started) == (CallState.FINISHED, None)


@requirement("S002-paused-status")
def test_run_with_only_open_approvals_is_waiting_and_so_is_its_thread() -> None:
    state = fold(log(started(), proposed(), asked()))
    assert state.status is ThreadStatus.WAITING
    assert state.runs["r1"].status is RunStatus.WAITING
    assert [entry.request.approval_id for entry in state.runs["r1"].pending_approvals] == ["a1"]


def test_run_is_not_waiting_while_another_call_runs() -> None:
    two: list[Event] = [
        started(),
        proposed("c1"),
        proposed("c2"),
        asked("a1", "c1"),
        tool_started("c2"),
    ]
    assert run_after(*two).status is RunStatus.RUNNING
    assert run_after(*two, finished("c2")).status is RunStatus.WAITING


def test_decision_ends_the_waiting() -> None:
    for outcome in ("approved", "rejected", "expired"):
        run = run_after(started(), proposed(), asked(), decided(outcome))
        assert run.status is RunStatus.RUNNING


def test_run_that_shall_stop_waits_for_nobody() -> None:
    run = run_after(started(), proposed(), asked(), cancel_requested())
    assert run.status is RunStatus.RUNNING


def test_one_decision_of_three_leaves_the_others_pending() -> None:
    calls = [proposed(f"c{n}") for n in (1, 2, 3)]
    asks = [asked(f"a{n}", f"c{n}") for n in (1, 2, 3)]
    run = run_after(started(), *calls, *asks, decided("approved", "a2", "c2"))
    assert [entry.request.approval_id for entry in run.pending_approvals] == ["a1", "a3"]


def test_approved_call_consumes_its_approval_at_the_start() -> None:
    gated: list[Event] = [started(), proposed(), asked(), decided("approved")]
    assert approval_state(call_after(*gated)) is ApprovalState.APPROVED
    call = call_after(*gated, tool_started(approval="a1"))
    assert approval_state(call) is ApprovalState.CONSUMED
    assert call.state is CallState.STARTED


@pytest.mark.parametrize("outcome", ["rejected", "expired", "withdrawn"])
def test_refused_call_gets_a_result_that_never_ran(outcome: Outcome) -> None:
    call = call_after(started(), proposed(), asked(), decided(outcome), finished(outcome="refused"))
    assert approval_state(call) is ApprovalState(outcome)
    assert call.approval is not None and call.approval.decision is not None
    assert (call.state, call.started) == (CallState.FINISHED, None)


def test_approval_withdrawn_by_a_mismatch_is_asked_for_again() -> None:
    again: list[Event] = [decided("approved"), decided("withdrawn"), asked("a2")]
    call = call_after(started(), proposed(), asked(), *again)
    assert call.waits
    assert call.approval is not None and call.approval.request.approval_id == "a2"
    call = call_after(
        started(),
        proposed(),
        asked(),
        *again,
        decided("approved", "a2"),
        tool_started(approval="a2"),
        finished(),
    )
    assert call.state is CallState.FINISHED


def test_call_of_a_withdrawn_approval_may_start_by_a_grant() -> None:
    by_grant = ToolStarted(run_id="r1", call_id="c1", grant_id="g1")
    withdrawn: list[Event] = [
        started(),
        proposed(),
        asked(),
        decided("approved"),
        decided("withdrawn"),
    ]
    assert call_after(*withdrawn, by_grant).state is CallState.STARTED


def test_lost_call_is_unknown_and_asks_a_human() -> None:
    run = run_after(*ASKED_IF_DONE)
    assert run.calls["c1"].state is CallState.UNKNOWN
    assert run.status is RunStatus.WAITING


@pytest.mark.parametrize(
    ("choice", "then", "state"),
    [
        ("done", [finished(result="a human saw it")], CallState.FINISHED),
        ("retry", [tool_started(approval="a2", attempt=2)], CallState.STARTED),
        ("give_up", [finished(outcome="sealed")], CallState.FINISHED),
    ],
)
def test_human_settles_an_unknown_outcome(
    choice: Choice, then: list[Event], state: CallState
) -> None:
    outcome: Outcome = "rejected" if choice == "give_up" else "approved"
    call = call_after(*ASKED_IF_DONE, decided(outcome, "a2", choice=choice), *then)
    assert call.state is state


def test_read_only_call_may_start_again_without_being_asked_about() -> None:
    call = call_after(*LOST[:3], tool_started(attempt=2), finished())
    assert call.started is not None and call.started.attempt == 2


def test_late_result_is_shown_beside_the_open_question() -> None:
    call = call_after(*ASKED_IF_DONE, late(result="it did run"))
    assert (call.late_result, call.waits) == ("it did run", True)


def test_late_result_after_the_end_of_its_run_is_kept() -> None:
    settled: list[Event] = [decided("rejected", "a2"), finished(outcome="sealed"), ended()]
    state = fold(log(*ASKED_IF_DONE, *settled, late()))
    assert state.runs["r1"].calls["c1"].late_result == "it was written"


GATED: list[Event] = [started(), proposed(), asked()]
REVIEWED = asked().model_copy(update={"review": Review(audience=FINANCE)})
VOTED: list[Event] = [started(), proposed(), REVIEWED, voted()]
TAKEN_BACK = VoteWithdrawn(run_id="r1", approval_id="a1", call_id="c1", voter="bob")


def test_approval_misses_the_votes_of_others_and_none_of_a_requester_who_decides_alone() -> None:
    def missing(*events: Event) -> int:
        approval = call_after(*events).approval
        assert approval is not None
        return approval.missing

    assert missing(*GATED) == 0
    assert missing(*VOTED[:-1]) == 1
    assert missing(*VOTED) == 0
    assert missing(*VOTED, TAKEN_BACK) == 1


IMPOSSIBLE: dict[str, list[Event]] = {
    "a call of an unknown id": [started(), tool_started()],
    "a result of an unknown call": [started(), finished()],
    "a late result of an unknown call": [*turn(), LateResult(run_id="r1", call_id="c", result="")],
    "the same call proposed twice": [started(), proposed(), proposed()],
    "an approval of an unknown call": [started(), asked()],
    "a second question while one is open": [*GATED, asked("a2")],
    "a question about a finished call": [started(), proposed(), finished(), asked()],
    "a decision nobody asked for": [started(), proposed(), decided("approved")],
    "a decision of another approval": [*GATED, decided("approved", "a9")],
    "a second decision": [*GATED, decided("approved"), decided("rejected")],
    "a withdrawal of a rejected approval": [*GATED, decided("rejected"), decided("withdrawn")],
    "a start by a pending approval": [*GATED, tool_started(approval="a1")],
    "a start past a pending approval": [*GATED, tool_started()],
    "a start by a rejected approval": [*GATED, decided("rejected"), tool_started(approval="a1")],
    "a start past a rejected approval": [*GATED, decided("rejected"), tool_started()],
    "a start past an expired approval": [*GATED, decided("expired"), tool_started()],
    "a retry of an unknown call given up": [
        *ASKED_IF_DONE,
        decided("rejected", "a2"),
        tool_started(attempt=2),
    ],
    "an approval used twice": [
        *GATED,
        decided("approved"),
        tool_started(approval="a1"),
        tool_started(approval="a1"),
    ],
    "a result while its approval is open": [*GATED, finished(outcome="sealed")],
    "a second result": [started(), proposed(), finished(), finished()],
    "a start after the result": [started(), proposed(), finished(), tool_started()],
    "a vote on what the requester decides alone": [*GATED, voted()],
    "a vote after the decision": [
        *VOTED,
        decided("approved").model_copy(update={"audience": FINANCE}),
        voted("eve"),
    ],
    "a vote taken back that was never cast": [*VOTED[:-1], TAKEN_BACK],
    "a vote taken back twice": [*VOTED, TAKEN_BACK, TAKEN_BACK],
    "an unknown outcome of a call not started": [started(), proposed(), outcome_unknown()],
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_history_is_damage(name: str) -> None:
    with pytest.raises(StateCorrupt):
        fold(log(*IMPOSSIBLE[name]))


@given(legal_logs())
def test_no_call_that_was_refused_ever_started_after_it(events: list[Event]) -> None:
    for run in fold(events).runs.values():
        for call in run.calls.values():
            if call.approval is None or call.started is None:
                continue
            if call.approval.state in {ApprovalState.REJECTED, ApprovalState.EXPIRED}:
                assert call.started.seq < call.approval.request.seq
