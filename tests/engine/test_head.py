"""What an admitted commit changes on the head and in the index."""

import pytest
from hypothesis import given

from sk_agents.engine.events import BranchChanged, Event, ThreadChanged
from sk_agents.engine.log.commits import (
    Absent,
    Claim,
    ClaimIfFree,
    LeaseChange,
    Owned,
    Pending,
    Quiet,
    Release,
    Unchanged,
    claimed,
)
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import RunStatus, Thread, ThreadStatus
from sk_agents.exceptions import (
    LeaseHeld,
    LeaseLost,
)
from tests.engine.builders import (
    answered,
    asked,
    cancel_requested,
    cancelled,
    decided,
    dequeued,
    ended,
    failed,
    finished,
    granted,
    imported,
    moment,
    one_of_each,
    proposed,
    queued,
    tool_started,
    turn,
)
from tests.engine.heads import (
    FREE,
    HELD,
    NEW,
    NOW,
    OPEN,
    PARKED,
    admitted,
    head_after,
    moved,
)
from tests.engine.histories import OWNER, Step, histories


def test_new_thread_takes_over_what_is_fixed_at_its_making() -> None:
    head = head_after()
    assert (head.user_id, head.session_id, head.wire_id) == ("ada", "s", "w")
    assert (head.surface, head.agent, head.metadata) == ("chats", "a", {"k": 1})
    assert (head.status, head.next_seq, head.epoch) == (ThreadStatus.IDLE, 1, 0)
    assert (head.runnable, head.queued, head.recoveries) == (False, 0, 0)
    assert (head.created_at, head.updated_at) == (NOW, NOW)


def test_start_makes_the_run_active_and_the_tip() -> None:
    assert (HELD.status, HELD.active_run, HELD.head_run) == (ThreadStatus.RUNNING, "r1", "r1")
    assert (HELD.owner, HELD.epoch, HELD.runnable) == (OWNER, 1, True)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ([answered(), ended()], ThreadStatus.COMPLETED),
        (failed(), ThreadStatus.FAILED),
        (cancelled(), ThreadStatus.CANCELLED),
    ],
)
def test_end_gives_its_status_and_nothing_is_left_to_do(
    end: list[Event], status: ThreadStatus
) -> None:
    head = moved(HELD, *end, lease=Release())
    assert (head.status, head.active_run, head.head_run) == (status, None, "r1")
    assert (head.owner, head.runnable) == (None, False)


def test_run_queued_behind_an_active_one_starts_in_the_commit_that_ends_it() -> None:
    head = moved(HELD, queued("r2"))
    assert (head.queued, head.active_run) == (1, "r1")
    head = moved(head, answered(), ended(), dequeued("r2", parent="r1"))
    assert (head.queued, head.active_run, head.head_run) == (0, "r2", "r2")
    assert (head.status, head.owner, head.runnable) == (ThreadStatus.RUNNING, OWNER, True)


def test_idle_thread_with_a_queue_has_work_to_do() -> None:
    head = moved(HELD, queued("r2"), answered(), ended(), lease=Release())
    assert (head.queued, head.runnable, head.status) == (1, True, ThreadStatus.COMPLETED)
    assert head_after(queued("r1")).runnable


def test_parked_thread_with_a_queue_has_no_work_until_somebody_decides() -> None:
    assert not moved(PARKED, queued("r2")).runnable


def test_cancel_of_a_queued_run_shortens_the_queue_and_leaves_the_active_run() -> None:
    head = moved(HELD, queued("r2"), ended("r2", RunStatus.CANCELLED))
    assert (head.queued, head.active_run, head.runnable) == (0, "r1", True)
    assert head.status is ThreadStatus.RUNNING


def test_cancel_of_one_queued_run_of_an_idle_thread_leaves_the_other_to_be_run() -> None:
    idle = head_after(queued("r1"), queued("r2"))
    head = moved(idle, cancel_requested("r1"), ended("r1", RunStatus.CANCELLED))
    assert (head.queued, head.runnable) == (1, True)
    head = moved(head, cancel_requested("r2"), ended("r2", RunStatus.CANCELLED))
    assert (head.queued, head.runnable) == (0, False)


def test_cancel_request_for_an_ended_or_queued_run_wakes_nobody() -> None:
    assert not moved(PARKED, queued("r2"), cancel_requested("r2")).runnable
    assert not head_after(*turn(), cancel_requested()).runnable


def test_parked_thread_waits_without_an_owner_and_without_work() -> None:
    assert (PARKED.status, PARKED.active_run) == (ThreadStatus.WAITING, "r1")
    assert (PARKED.owner, PARKED.runnable, PARKED.epoch) == (None, False, 1)


@pytest.mark.parametrize("event", [decided("approved"), cancel_requested()])
@pytest.mark.parametrize("lease", [None, ClaimIfFree("decider")])
def test_decision_or_cancel_makes_a_parked_run_go_on(
    event: Event, lease: LeaseChange | None
) -> None:
    head = moved(PARKED._replace(recoveries=2), event, lease=lease)
    assert (head.status, head.runnable, head.recoveries) == (ThreadStatus.RUNNING, True, 0)
    assert (head.owner, head.epoch) == (("decider", 2) if lease else (None, 1))


def test_branch_switch_moves_the_tip_alone() -> None:
    two = head_after(*turn(), *turn("r2", parent="r1"))
    head = moved(two, BranchChanged(head_run="r1"))
    assert (head.head_run, head.status) == ("r1", two.status)
    assert moved(two, BranchChanged(head_run=None)).head_run is None


def test_metadata_is_merged_into_what_the_thread_was_made_with() -> None:
    head = head_after(ThreadChanged(metadata={"title": "A"}), ThreadChanged(metadata={"k": None}))
    assert head.metadata == {"title": "A"}
    assert NEW.metadata == {"k": 1}


def test_imported_status_counts_only_while_no_run_is_active() -> None:
    assert head_after(imported("x", status="failed")).status is ThreadStatus.FAILED
    assert moved(FREE, imported("x", status="failed")).status is ThreadStatus.RUNNING
    assert moved(FREE, imported("x")).status is ThreadStatus.RUNNING


@pytest.mark.parametrize(
    "event", [proposed(), asked(), tool_started(), finished(), answered(), granted()]
)
def test_step_of_a_run_moves_only_the_end_of_the_log(event: Event) -> None:
    assert moved(HELD, event) == HELD._replace(next_seq=3)


def test_claim_of_a_free_thread_starts_a_new_epoch() -> None:
    head = admitted(Quiet(2), FREE, lease=Claim("new")).thread
    assert (head.owner, head.epoch) == ("new", 2)


def test_claim_of_a_thread_without_an_active_run_leaves_its_status() -> None:
    ended_head = moved(HELD, answered(), ended(), lease=Release())
    head = admitted(Quiet(ended_head.next_seq), ended_head, lease=Claim("new")).thread
    assert head.status is ThreadStatus.COMPLETED


def test_claim_if_free_leaves_a_live_owner_alone() -> None:
    guard = Pending("a1")
    head = admitted(guard, HELD, lease=ClaimIfFree("x"), leased=True, approval=OPEN).thread
    assert (head.owner, head.epoch) == (OWNER, 1)


def test_quiet_commit_fences_an_owner_whose_time_is_up() -> None:
    head = admitted(Quiet(2), HELD, *cancelled(), leased=False).thread
    assert (head.owner, head.epoch) == (None, 2)
    with pytest.raises(LeaseLost):
        admitted(Owned(OWNER, 1), head)


def test_recovery_takes_the_lease_and_is_counted() -> None:
    head = claimed(HELD, "rescuer", leased=False, now=NOW)
    assert (head.owner, head.epoch, head.recoveries) == ("rescuer", 2, 1)
    assert claimed(head, "next", leased=False, now=NOW).recoveries == 2
    with pytest.raises(LeaseLost):
        admitted(Owned(OWNER, 1), head)


def test_recovery_of_a_held_thread_is_refused() -> None:
    with pytest.raises(LeaseHeld):
        claimed(HELD, "thief", leased=True, now=NOW)


def test_index_rows_follow_from_the_events() -> None:
    admission = admitted(Absent(NEW), None, *one_of_each())
    rows = [(row.kind, row.key, row.run_id, row.open, row.due_at) for row in admission.entries]
    assert rows == [
        ("run", "r2", "r2", False, None),
        ("run", "r1", "r1", False, None),
        ("approval", "a1", "r1", True, moment(3600)),
        ("approval", "a1", "r1", True, moment(7200)),
        ("review", "a1@group:finance", "r1", False, None),
        ("review", "a1@group:board", "r1", True, None),
        ("approval", "a1", "r1", False, None),
        ("grant", "g1", "r1", True, None),
        ("rating", "r1", "r1", True, None),
    ]
    # A review is in the inbox of others, a rating is for those who run the server.
    own = [row for row in admission.entries if row.kind not in ("review", "rating")]
    assert {(row.thread_id, row.user_id) for row in own} == {("t", "ada")}
    others = [row for row in admission.entries if row.kind in ("review", "rating")]
    assert [row.user_id for row in others] == ["group:finance", "group:board", "ratings:all"]


def test_start_of_a_queued_run_adds_no_second_row_and_a_revoked_grant_closes_its_row() -> None:
    admission = admitted(Unchanged(2), FREE, dequeued("r1"), granted(given=False))
    assert [(row.kind, row.open) for row in admission.entries] == [("grant", False)]


def replayed(steps: list[Step]) -> tuple[Thread, list[Event]]:
    admission = admitted(Absent(NEW), None, *steps[0].events, lease=steps[0].lease)
    events = list(admission.events)
    for step in steps[1:]:
        head = admission.thread
        leased = head.owner is not None
        guard = Unchanged(head.next_seq)
        admission = admitted(guard, head, *step.events, lease=step.lease, leased=leased)
        events += admission.events
    return admission.thread, events


@given(histories())
def test_head_agrees_with_the_fold_of_its_log(steps: list[Step]) -> None:
    head, events = replayed(steps)
    state = fold(events)
    assert head.status is state.status
    assert (head.active_run, head.head_run) == (state.active_run, state.head_run)
    assert (head.queued, head.next_seq) == (len(state.queue), state.next_seq)
    assert head.metadata == {"k": 1, **state.metadata}


@given(histories())
def test_head_has_work_exactly_when_no_person_is_needed_for_the_next_step(
    steps: list[Step],
) -> None:
    head, events = replayed(steps)
    state = fold(events)
    waits = state.status is ThreadStatus.WAITING
    assert head.runnable is (not waits if state.active_run else bool(state.queue))
