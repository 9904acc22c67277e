from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sk_agents.engine import events
from sk_agents.engine.events import EVENT_TYPES, Event, Unrecognised
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import Effect, Part, RunStatus, ThreadStatus, Usage, UserInput
from sk_agents.engine.ports import Store
from sk_agents.testing.commits import append, create, start_run, thought
from sk_agents.testing.store_contract.case import StoreCases, every_event

AT = datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
USAGE = Usage(prompt_tokens=3, completion_tokens=2**40)
VALUES = {"none": None, "list": [1, [], {}], "float": 0.1, "big": 2**63, "no": False, "": ""}
MESSAGE = UserInput(
    parts=(Part(content="hi"), Part(kind="file", content="x", name="a.txt")), context={"k": "v"}
)

WHOLE: tuple[Event, ...] = (
    events.RunQueued(
        run_id="r",
        message=MESSAGE,
        idempotency_key="k",
        request_digest="d",
        agent="a",
        on_disconnect="cancel",
    ),
    events.RunStarted(run_id="r", message=MESSAGE, parent_run="p", edits="e", agent="a"),
    events.ModelRestarted(run_id="r", round=1, attempt=2, reason="timeout"),
    events.Thinking(run_id="r", round=1, content="hm", spoken=True),
    events.ToolProposed(
        run_id="r",
        round=1,
        call_id="c",
        plugin_name="p",
        function_name="f",
        arguments=VALUES,
        effect=Effect.IDEMPOTENT,
        definition_digest="d",
        gated=False,
        problem="none",
        usage=USAGE,
    ),
    events.ApprovalRequested(
        run_id="r",
        approval_id="a",
        call_id="c",
        kind="question",
        digest="d",
        shown=VALUES,
        choices=("yes", "no"),
        answer_schema={"type": "object", "default": None},
        expires_at=AT,
        asked_uptime=1000.25,
    ),
    events.ApprovalDecided(
        run_id="r",
        approval_id="a",
        call_id="c",
        outcome="approved",
        by="human",
        decided_by="ann",
        message="go",
        edited_arguments=VALUES,
        digest="d",
        choice="done",
        answer=[None, {"x": None}],
        idempotency_key="k",
    ),
    events.ToolStarted(
        run_id="r", call_id="c", attempt=2, digest="d", idempotency_key="k", grant_id="g"
    ),
    events.ToolFinished(
        run_id="r",
        call_id="c",
        outcome="refused",
        by="policy",
        result="no",
        full_size=7,
        usage=USAGE,
        extra_data=VALUES,
    ),
    events.ToolOutcomeUnknown(run_id="r", call_id="c", reason="lost"),
    events.LateResult(run_id="r", call_id="c", result="late"),
    events.CancelRequested(run_id="r", requested_by="ann", reason="drain"),
    events.Cancelled(run_id="r", partial="so f"),
    events.Failed(run_id="r", code="c", message="m", correlation_id="i"),
    events.Answered(run_id="r", round=2, content="x", finish_reason="length", usage=USAGE),
    events.Compacted(run_id="r", through_run="r", summary="s"),
    events.GrantChanged(
        run_id="r", grant_id="g", tool="p-f", scope="run", granted=False, changed_by="ann"
    ),
    events.BranchChanged(run_id="r", head_run="r"),
    events.Imported(
        run_id="r",
        items=(
            events.ImportedItem(
                role="assistant", content_type="image", content="data:", run_id="r", at=AT
            ),
        ),
        status=ThreadStatus.WAITING,
    ),
    events.ThreadChanged(metadata=VALUES),
    events.RunEnded(run_id="r", status=RunStatus.CANCELLED, usage=USAGE),
    Unrecognised(run_id="r", type="from_the_future"),
)

BARE: tuple[Event, ...] = (
    events.RunQueued(message=UserInput(parts=())),
    events.RunStarted(),
    events.ApprovalRequested(approval_id="a", call_id="c", digest="", shown={}),
    events.ApprovalDecided(approval_id="a", call_id="c", outcome="expired", by="timeout"),
    events.ToolFinished(call_id="c", result=""),
    events.Cancelled(),
    events.BranchChanged(head_run=None),
    events.Imported(),
    events.ThreadChanged(metadata={}),
    events.RunEnded(status=RunStatus.COMPLETED),
)


def name_of(event: Event) -> str:
    return event.type


class EventTypeCases(StoreCases):
    """Every event reads back equal to what was committed, with all its fields or the fewest."""

    async def test_all_event_types_are_in_these_cases(self) -> None:
        assert {event.type for event in WHOLE} == EVENT_TYPES | {"from_the_future"}

    @pytest.mark.parametrize("event", WHOLE, ids=name_of)
    async def test_full_event_reads_back_equal(self, store: Store, event: Event) -> None:
        committed = await store.commit(create("t", event))
        assert await every_event(store, "t") == list(committed.events)
        assert committed.events[0].model_copy(update={"seq": 0, "at": event.at}) == event

    @pytest.mark.parametrize("event", BARE, ids=name_of)
    async def test_bare_event_reads_back_equal(self, store: Store, event: Event) -> None:
        committed = await store.commit(create("t", event))
        assert await every_event(store, "t") == list(committed.events)
        assert committed.events[0].model_copy(update={"seq": 0, "at": event.at}) == event

    async def test_event_of_a_newer_version_is_kept_and_skipped(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        future = Unrecognised(run_id="run-1", type="from_the_future")
        later = (await store.commit(append(head, future, thought()))).thread
        log = await every_event(store, "t")
        assert [event.type for event in log] == ["run_started", "from_the_future", "thinking"]
        assert fold(log).next_seq == later.next_seq
