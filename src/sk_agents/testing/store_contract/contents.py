"""What was committed reads back as it was, whatever it is.

- Every event reads back equal to what was committed, with all its fields or the fewest.
- Every text comes back as it was given, or is refused as a whole.
- Large texts, large commits and long logs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sk_agents.engine import events
from sk_agents.engine.events import EVENT_TYPES, Event, ImportedItem, ThreadChanged, Unrecognised
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import (
    Audience,
    Effect,
    Part,
    Review,
    RunStatus,
    ThreadStatus,
    Usage,
    UserInput,
)
from sk_agents.engine.ports import Store
from sk_agents.exceptions import InvalidInput
from sk_agents.testing.commits import (
    USER,
    answered,
    append,
    call_proposed,
    create,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import StoreCases, every_event, refused

AT = datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
USAGE = Usage(prompt_tokens=3, completion_tokens=2**40)
VALUES = {"none": None, "list": [1, [], {}], "float": 0.1, "big": 2**63, "no": False, "": ""}
MESSAGE = UserInput(
    parts=(Part(content="hi"), Part(kind="file", content="x", name="a.txt")), context={"k": "v"}
)

_WHOLE: tuple[Event, ...] = (
    events.RunQueued(
        message=MESSAGE, idempotency_key="k", request_digest="d", agent="a", on_disconnect="cancel"
    ),
    events.RunStarted(message=MESSAGE, parent_run="p", edits="e", agent="a"),
    events.ModelRestarted(round=1, attempt=2, reason="timeout"),
    events.Thinking(round=1, content="hm", spoken=True),
    events.ToolProposed(
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
        approval_id="a",
        call_id="c",
        kind="question",
        digest="d",
        shown=VALUES,
        choices=("yes", "no"),
        answer_schema={"type": "object", "default": None},
        expires_at=AT,
        asked_uptime=1000.25,
        review=Review(
            audience=Audience(roles=("approver",), groups=("finance",), users=("bob",)),
            quorum=2,
            not_requester=True,
            lifetime=1800.5,
            on_expiry="escalate",
            escalate_to="board",
            share_conversation=True,
        ),
    ),
    events.VoteCast(
        approval_id="a",
        call_id="c",
        voter="bob",
        voter_name="Bob",
        right="group:finance",
        approved=True,
        digest="d",
        message="fine",
        idempotency_key="k",
    ),
    events.VoteWithdrawn(approval_id="a", call_id="c", voter="bob", voter_name="Bob"),
    events.ReviewExtended(
        approval_id="a",
        call_id="c",
        audience=Audience(groups=("board",)),
        left=Audience(groups=("finance",)),
        expires_at=AT,
        asked_uptime=1000.25,
    ),
    events.ApprovalDecided(
        approval_id="a",
        call_id="c",
        outcome="approved",
        by="human",
        decided_by="ann",
        decided_by_name="Ann",
        audience=Audience(users=("ann",)),
        message="go",
        edited_arguments=VALUES,
        digest="d",
        choice="done",
        answer=[None, {"x": None}],
        idempotency_key="k",
    ),
    events.ToolStarted(call_id="c", attempt=2, digest="d", idempotency_key="k", grant_id="g"),
    events.ToolFinished(
        call_id="c",
        outcome="refused",
        by="policy",
        result="no",
        full_size=7,
        usage=USAGE,
        extra_data=VALUES,
    ),
    events.ToolOutcomeUnknown(call_id="c", reason="lost"),
    events.LateResult(call_id="c", result="late"),
    events.Steered(
        message_id="m",
        content="x",
        said_by="ann",
        idempotency_key="k",
        request_digest="d",
        secrets={"s": "x"},
    ),
    events.SteeringDelivered(round=2, message_ids=("m", "n"), usage=USAGE),
    events.CancelRequested(requested_by="ann", reason="drain", after="step"),
    events.Cancelled(partial="so f"),
    events.Failed(code="c", message="m", correlation_id="i"),
    events.Answered(round=2, content="x", finish_reason="length", usage=USAGE),
    events.Compacted(through_run="r", summary="s"),
    events.GrantChanged(
        grant_id="g",
        tool="p-f",
        scope="run",
        granted=False,
        changed_by="ann",
        definition_digest="d",
    ),
    events.BranchChanged(head_run="r"),
    events.Imported(
        items=(
            ImportedItem(role="assistant", content_type="image", content="d:", run_id="r", at=AT),
        ),
        status=ThreadStatus.WAITING,
    ),
    events.Rated(run_id="r", rating="down", note="Wrong 年."),
    events.ThreadChanged(metadata=VALUES),
    events.RunEnded(status=RunStatus.CANCELLED, usage=USAGE),
    events.Noted(
        what="deleting",
        who="bob",
        who_name="Bob",
        role="operator",
        subject="t",
        user_id="ann",
        agent="helper",
        outcome="asked for",
        digest="1:ab",
        count=2,
        details={"next_seq": 7},
    ),
    Unrecognised(type="from_the_future"),
)
WHOLE = tuple(event.model_copy(update={"run_id": "r"}) for event in _WHOLE)

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
    events.Noted(what="exported"),
    events.Rated(run_id="r"),
)


TEXTS = {
    "emoji": "👩‍👩‍👧‍👦 🇫🇮 👍🏽",
    "combining": "e\u0301 and é are not the same",
    "right-to-left": "\u202bשלום עולם\u202c العربية",
    "separators": "a\u2028b\u2029c\x85d\r\ne\rf\tg\x0bh\x1ci",
    "nul": "before\x00after\x00",
    "controls": "\x01\x1b[31m\x7f\ufeff\ufffe\uffff",
    "json": '{"v": 1}\n\\u0000 "quotes" \\',
    "astral": "\U0001f600\U0010ffff",
    "replacement": "\ufffd",
    "empty": "",
    "spaces": "  two  ",
}


def nested(depth: int) -> dict[str, Any]:
    return {} if depth == 0 else {"in": nested(depth - 1)}


TOO_DEEP = nested(220)


MEGABYTE = 1024 * 1024


class ContentCases(StoreCases):
    async def test_all_event_types_are_in_these_cases(self) -> None:
        assert {event.type for event in WHOLE} == EVENT_TYPES | {"from_the_future"}

    @pytest.mark.parametrize("event", WHOLE, ids=lambda event: event.type)
    async def test_full_event_reads_back_equal(self, store: Store, event: Event) -> None:
        committed = await store.commit(create("t", event))
        assert await every_event(store, "t") == list(committed.events)
        assert committed.events[0].model_copy(update={"seq": 0, "at": event.at}) == event

    @pytest.mark.parametrize("event", BARE, ids=lambda event: event.type)
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

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    async def test_text_reads_back_unchanged(self, store: Store, text: str) -> None:
        call = call_proposed("c", arguments={"text": text, f"key {text}": [text]})
        committed = await store.commit(create("t", thought(text), answered(text), call))
        assert await every_event(store, "t") == list(committed.events)
        assert committed.events[1].model_dump()["content"] == text

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
    async def test_metadata_reads_back_unchanged(self, store: Store, text: str) -> None:
        head = (await store.commit(create("t", metadata={"title": text}))).thread
        assert (await store.thread("t")).metadata == {"title": text}
        await store.commit(append(head, ThreadChanged(metadata={f"k{text}": text})))
        assert (await store.thread("t")).metadata == {"title": text, f"k{text}": text}

    @pytest.mark.parametrize("half", ["\ud800", "a\udfffb"])
    async def test_half_of_a_surrogate_pair_is_refused(self, store: Store, half: str) -> None:
        head = (await store.commit(start_run("t"))).thread
        await refused(store, append(head, thought(half)), InvalidInput)
        await refused(store, append(head, thought("good"), answered(half)), InvalidInput)
        in_value = call_proposed("c", arguments={"x": [half]})
        await refused(store, append(head, in_value), InvalidInput)
        in_key = call_proposed("c", arguments={half: 1})
        await refused(store, append(head, in_key), InvalidInput)

    async def test_new_thread_with_half_of_a_surrogate_pair_is_refused(self, store: Store) -> None:
        await refused(store, create("t", thought("\ud800")), InvalidInput)
        await refused(store, create("t", metadata={"title": "\ud800"}), InvalidInput)

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
    async def test_number_that_json_does_not_know_is_refused(
        self, store: Store, number: float
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        call = call_proposed("c", arguments={"x": [number]})
        await refused(store, append(head, call), InvalidInput)

    async def test_value_nested_too_deep_is_refused_or_kept_but_never_unreadable(
        self, store: Store
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        try:
            await store.commit(append(head, call_proposed("c", arguments=TOO_DEEP)))
        except InvalidInput:
            assert await store.thread("t") == head
        await every_event(store, "t")
        await store.events_after("t", 0)

    async def test_value_nested_a_hundred_deep_is_kept(self, store: Store) -> None:
        committed = await store.commit(create("t", call_proposed("c", arguments=nested(100))))
        assert await every_event(store, "t") == list(committed.events)

    async def test_numbers_keep_their_value(self, store: Store) -> None:
        numbers = [0.1, 1e-300, 1.7976931348623157e308, -0.0, 2**53 + 1, 2**64, -(2**70)]
        await store.commit(create("t", call_proposed("c", arguments={"x": numbers})))
        (event,) = await every_event(store, "t")
        assert event.model_dump()["arguments"] == {"x": numbers}

    async def test_ids_may_hold_any_text(self, store: Store) -> None:
        for name in ("a/b", "../up", "..", "a b", "Ä", "a:b", "con", "x" * 200, "A", "a", "%41"):
            await store.commit(start_run(name, f"run-{name}"))
        for name in ("a/b", "../up", "..", "a b", "Ä", "a:b", "con", "x" * 200, "A", "a", "%41"):
            assert (await store.thread(name)).thread_id == name
            assert [event.run_id for event in await every_event(store, name)] == [f"run-{name}"]
            found = await store.find("run", f"run-{name}")
            assert found is not None
            assert (found.thread_id, found.user_id) == (name, USER)

    async def test_megabyte_of_text_reads_back_unchanged(self, store: Store) -> None:
        text = "é" * (MEGABYTE // 2)
        head = (await store.commit(start_run("t", text=text))).thread
        committed = await store.commit(append(head, answered(text)))
        assert (await store.events_after("t", 1)) == list(committed.events)
        assert committed.events[0].model_dump()["content"] == text

    async def test_megabyte_of_metadata_reads_back_unchanged(self, store: Store) -> None:
        await store.commit(create("t", metadata={"note": "n" * MEGABYTE}))
        assert (await store.thread("t")).metadata == {"note": "n" * MEGABYTE}

    async def test_commit_of_three_hundred_events_is_one_commit(self, store: Store) -> None:
        commit = create("t", *(thought(str(number)) for number in range(300)))
        committed = await store.commit(commit)
        assert [event.seq for event in committed.events] == list(range(1, 301))
        assert await every_event(store, "t", page=7) == list(committed.events)
        assert (await store.commit(commit)).events == committed.events

    async def test_log_of_five_thousand_events_is_whole(self, store: Store) -> None:
        head = (await store.commit(create("t"))).thread
        for number in range(50):
            events = [thought(f"{number}.{n}") for n in range(100)]
            head = (await store.commit(append(head, *events))).thread
        log = await every_event(store, "t")
        assert [event.seq for event in log] == list(range(1, 5001))
        assert log[4321].model_dump()["content"] == "43.21"
        assert [event.seq for event in await store.events_after("t", 4990)] == [*range(4991, 5001)]

    async def test_first_page_has_at_most_five_hundred_events(self, store: Store) -> None:
        await store.commit(create("t", *(thought(str(number)) for number in range(600))))
        assert len(await store.events_after("t", 0)) == 500
