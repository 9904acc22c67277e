"""What a log means for a thread and its runs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sk_agents.engine.events import (
    BranchChanged,
    CancelRequested,
    Compacted,
    Event,
    ModelRestarted,
    Rated,
    ThreadChanged,
    Unrecognised,
)
from sk_agents.engine.log.state import ThreadState, fold
from sk_agents.engine.models import Message, RunStatus, ThreadStatus, ToolCall, Usage
from sk_agents.persistence.encoding import decode_record, encode_events, record_checksum
from tests.engine.builders import (
    answered,
    cancel_requested,
    cancelled,
    dequeued,
    ended,
    failed,
    finished,
    granted,
    imported,
    log,
    moment,
    proposed,
    queued,
    said,
    started,
    thought,
    tool_started,
    turn,
)
from tests.engine.histories import legal_logs
from tests.requirements import requirement


def test_rating_of_a_run_is_the_last_one_until_it_is_taken_back() -> None:
    up, down = (Rated(run_id="r1", rating=rating) for rating in ("up", "down"))
    back = Rated(run_id="r1", rating=None)

    def rated(*ratings: Event) -> Any:
        found = fold(log(*turn(), *ratings)).run("r1").rated
        return found and found.rating

    assert rated() is None
    assert rated(up) == "up"
    assert rated(up, down) == "down"
    assert rated(up, back) is None


def branch(state: ThreadState) -> list[str]:
    return [run.run_id for run in state.branch()]


def test_empty_log_is_an_idle_thread() -> None:
    state = fold([])
    assert (state.status, state.next_seq, state.branch()) == (ThreadStatus.IDLE, 1, [])


def test_plain_turn_is_completed_with_its_answer_and_usage() -> None:
    state = fold(log(*turn(text="hi")))
    run = state.runs["r1"]
    assert state.status is ThreadStatus.COMPLETED
    assert run.message == said("hi")
    assert run.answer is not None and run.answer.content == "Done."
    assert run.usage == Usage(prompt_tokens=3, completion_tokens=4)
    assert (run.created_at, run.completed_at) == (moment(1), moment(3))
    assert state.active_run is None
    assert state.next_seq == 4


def test_open_run_is_running_and_active() -> None:
    state = fold(log(started()))
    assert (state.status, state.active_run) == (ThreadStatus.RUNNING, "r1")


@requirement("S000-task-execution-trace")
def test_trace_holds_steps_tools_and_their_results_in_order() -> None:
    state = fold(
        log(
            started(),
            thought(content="I need two files."),
            proposed("c1", arguments={"path": "a"}),
            proposed("c2", arguments={"path": "b"}),
            tool_started("c1"),
            tool_started("c2"),
            finished("c2", result="B"),
            finished("c1", result="A"),
            answered(content="A and B."),
            ended(),
        )
    )
    run = state.runs["r1"]
    assert [step.content for step in run.thoughts] == ["I need two files."]
    trace = [
        (
            call.proposal.function_name,
            call.proposal.arguments,
            call.finished and call.finished.result,
        )
        for call in run.calls.values()
    ]
    assert trace == [("write", {"path": "a"}, "A"), ("write", {"path": "b"}, "B")]


def messages(state: ThreadState) -> list[Message]:
    """The conversation a model is sent, composed from the fold alone."""
    sent: list[Message] = []
    for run in state.branch():
        assert run.message is not None
        sent.append(Message(role="user", parts=run.message.parts))
        if run.calls:
            spoken = " ".join(step.content for step in run.thoughts if step.spoken)
            calls = tuple(
                ToolCall(
                    id=call.proposal.call_id,
                    plugin_name=call.proposal.plugin_name,
                    function_name=call.proposal.function_name,
                    arguments=call.proposal.arguments,
                )
                for call in run.calls.values()
            )
            sent.append(Message(role="assistant", content=spoken, tool_calls=calls))
        for call in run.calls.values():
            assert call.finished is not None
            result = call.finished.result
            sent.append(Message(role="tool", content=result, tool_call_id=call.proposal.call_id))
        if run.answer is not None:
            sent.append(Message(role="assistant", content=run.answer.content))
    return sent


@requirement("S000-state-rebuild")
def test_stored_bytes_alone_rebuild_the_conversation() -> None:
    events: list[Event] = [
        started(text="write it"),
        thought(content="Certainly.", spoken=True),
        proposed(arguments={"path": "a", "mode": None}),
        tool_started(),
        finished(result="3 bytes"),
        answered(content="It is written."),
        ended(),
        *turn("r2", parent="r1", text="thanks"),
    ]
    stored = encode_events(events, moment(0))
    record = decode_record("t", 1, "commit", stored, record_checksum("t", 1, "commit", stored))
    call = ToolCall(
        id="c1",
        plugin_name="files",
        function_name="write",
        arguments={"path": "a", "mode": None},
    )
    assert messages(fold(record.events)) == [
        Message(role="user", parts=said("write it").parts),
        Message(role="assistant", content="Certainly.", tool_calls=(call,)),
        Message(role="tool", content="3 bytes", tool_call_id="c1"),
        Message(role="assistant", content="It is written."),
        Message(role="user", parts=said("thanks").parts),
        Message(role="assistant", content="Done."),
    ]


def test_cancelled_run_keeps_its_partial_text_and_who_asked() -> None:
    state = fold(log(started(), cancel_requested(), *cancelled(partial="It is wr")))
    run = state.runs["r1"]
    assert state.status is ThreadStatus.CANCELLED
    assert run.cancelled is not None and run.cancelled.partial == "It is wr"
    assert run.cancel_requested is not None and run.cancel_requested.requested_by == "ada"


def test_first_cancel_request_is_the_one_kept() -> None:
    again = CancelRequested(run_id="r1", requested_by="bob")
    run = fold(log(started(), cancel_requested(), again)).runs["r1"]
    assert run.cancel_requested is not None and run.cancel_requested.requested_by == "ada"


def test_cancel_request_after_the_end_changes_no_status() -> None:
    state = fold(log(*turn(), cancel_requested()))
    assert state.runs["r1"].status is RunStatus.COMPLETED


def test_failed_run_says_why_and_the_thread_goes_on() -> None:
    state = fold(log(started(), *failed(), *turn("r2", parent="r1")))
    failure = state.runs["r1"].failure
    assert failure is not None and failure.code == "llm_unavailable"
    assert state.runs["r1"].status is RunStatus.FAILED
    assert state.status is ThreadStatus.COMPLETED


def test_last_attempt_of_a_round_is_known() -> None:
    restarts = [ModelRestarted(run_id="r1", round=1, attempt=attempt) for attempt in (2, 3)]
    assert fold(log(started(), *restarts)).runs["r1"].attempts == {1: 3}


def test_queued_run_waits_its_turn_and_then_runs_with_its_own_message() -> None:
    events = log(started(), queued("r2", text="and this"), answered(), ended())
    state = fold(events)
    assert (state.queue, state.runs["r2"].status) == (["r2"], RunStatus.QUEUED)
    state = fold(log(*events, dequeued("r2", parent="r1"), answered("r2"), ended("r2")))
    assert (state.queue, branch(state)) == ([], ["r1", "r2"])
    assert state.runs["r2"].message == said("and this")


def test_run_cancelled_while_queued_leaves_the_queue_and_not_the_active_run() -> None:
    state = fold(log(started(), queued("r2"), ended("r2", RunStatus.CANCELLED)))
    assert (state.queue, state.active_run) == ([], "r1")
    assert state.runs["r2"].status is RunStatus.CANCELLED
    assert state.status is ThreadStatus.RUNNING
    assert branch(state) == ["r1"]


@requirement("S004-12.3-parent")
def test_edit_adds_a_sibling_and_the_edited_run_is_superseded_but_kept() -> None:
    edit = started("r3", parent="r1", text="rather this").model_copy(update={"edits": "r2"})
    moved = BranchChanged(head_run="r1")
    state = fold(log(*turn(), *turn("r2", parent="r1"), moved, edit, answered("r3"), ended("r3")))
    assert {run.run_id: run.parent_run for run in state.runs.values()} == {
        "r1": None,
        "r2": "r1",
        "r3": "r1",
    }
    assert branch(state) == ["r1", "r3"]
    assert state.runs["r3"].edits == "r2"
    assert state.runs["r2"].status is RunStatus.COMPLETED


def test_branch_switch_shows_the_sibling_again() -> None:
    two = [*turn(), *turn("r2", parent="r1"), *turn("r3", parent="r1")]
    assert branch(fold(log(*two))) == ["r1", "r3"]
    assert branch(fold(log(*two, BranchChanged(head_run="r2")))) == ["r1", "r2"]
    assert branch(fold(log(*two, BranchChanged(head_run=None)))) == []


def test_grant_is_held_until_it_is_taken_back() -> None:
    assert list(fold(log(started(), granted())).grants) == ["g1"]
    assert fold(log(started(), granted(), granted(given=False))).grants == {}


def test_compaction_keeps_every_run() -> None:
    compacted = Compacted(run_id="r2", through_run="r1", summary="They greeted.")
    state = fold(log(*turn(), started("r2", parent="r1"), compacted))
    assert [entry.summary for entry in state.compactions] == ["They greeted."]
    assert branch(state) == ["r1", "r2"]


def test_imported_items_and_status_are_taken_over() -> None:
    state = fold(log(imported("one", "two", status="failed"), imported("three")))
    assert [item.content for item in state.imported] == ["one", "two", "three"]
    assert state.status is ThreadStatus.FAILED


def test_metadata_is_merged_and_none_removes_a_key() -> None:
    changes = ({"title": "a", "x": 1}, {"x": None, "y": 2})
    state = fold(log(*(ThreadChanged(metadata=change) for change in changes)))
    assert state.metadata == {"title": "a", "y": 2}


def test_event_of_a_newer_version_is_counted_and_skipped() -> None:
    stranger = Unrecognised(type="run_teleported", run_id="nowhere")
    state = fold(log(started(), stranger, answered(), ended()))
    assert (state.status, state.next_seq) == (ThreadStatus.COMPLETED, 5)


def test_idempotency_key_leads_to_its_run() -> None:
    keyed = started().model_copy(update={"idempotency_key": "k", "request_digest": "d"})
    assert fold(log(keyed)).keys == {"k": "r1"}


@requirement("S004-4.3-sealed")
@given(legal_logs())
def test_every_ended_run_has_a_result_for_each_call(events: list[Event]) -> None:
    for run in fold(events).runs.values():
        if run.completed_at is not None:
            assert run.unresolved_calls == []
            assert run.pending_approvals == []


@given(legal_logs())
def test_folding_twice_gives_the_same_and_changes_no_event(events: list[Event]) -> None:
    copies = [event.model_copy(deep=True) for event in events]
    assert fold(events) == fold(copies)
    assert events == copies


@given(legal_logs(), st.data())
def test_going_on_from_a_prefix_equals_folding_everything(
    events: list[Event], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(events)))
    state = fold(events[:cut])
    for event in events[cut:]:
        state.apply(event)
    assert state == fold(events)


@given(legal_logs())
def test_branch_is_a_chain_of_parents_that_ends_at_the_root(events: list[Event]) -> None:
    path = fold(events).branch()
    parents = [run.parent_run for run in path]
    assert parents == [None, *(run.run_id for run in path)][: len(path)]


def test_run_knows_the_last_of_its_own_events() -> None:
    state = fold(log(*turn("r1"), *turn("r2", parent="r1")))
    assert [run.last_seq for run in state.runs.values()] == [3, 6]
