"""Which commits are admitted, and with which error the others are refused."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from sk_agents.engine.log.commits import (
    Absent,
    Guard,
    Owned,
    Pending,
    Quiet,
    Unchanged,
)
from sk_agents.engine.models import Thread
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    ApprovalExpired,
    ApprovalNotFound,
    LeaseHeld,
    LeaseLost,
    SequenceConflict,
    TealError,
    ThreadExists,
    ThreadNotFound,
)
from tests.engine.builders import (
    granted,
)
from tests.engine.heads import FREE, HELD, LATE, NEW, NOW, OPEN, PARKED, admitted
from tests.engine.histories import OWNER

HOLDS: dict[str, tuple[Guard, Thread | None, dict[str, Any]]] = {
    "absent": (Absent(NEW), None, {}),
    "owned": (Owned(OWNER, 1), HELD, {"leased": True}),
    "owned, its time up, nobody took over": (Owned(OWNER, 1), HELD, {"leased": False}),
    "owned and unchanged": (Owned(OWNER, 1, next_seq=2, exact=True), HELD, {"leased": True}),
    "quiet, nobody holds it": (Quiet(2), FREE, {}),
    "quiet, its holder's time is up": (Quiet(2), HELD, {"leased": False}),
    "unchanged": (Unchanged(2), FREE, {}),
    "unchanged, somebody holds it": (Unchanged(2), HELD, {"leased": True}),
    "pending": (Pending("a1"), PARKED, {"approval": OPEN}),
    "pending for ever": (Pending("a1"), PARKED, {"approval": replace(OPEN, due_at=None)}),
    "pending, somebody holds it": (Pending("a1"), HELD, {"approval": OPEN, "leased": True}),
    "pending and unchanged": (
        Pending("a1", next_seq=PARKED.next_seq, exact=True),
        PARKED,
        {"approval": OPEN},
    ),
    "overdue": (Pending("a1", overdue=True), PARKED, {"approval": LATE}),
    "late by the wall clock only": (Pending("a1", in_time=True), PARKED, {"approval": LATE}),
}
FAILS: dict[str, tuple[Guard, Thread | None, dict[str, Any], type[TealError]]] = {
    "absent, it exists": (Absent(NEW), FREE, {}, ThreadExists),
    "owned, no thread": (Owned(OWNER, 1), None, {}, ThreadNotFound),
    "quiet, no thread": (Quiet(1), None, {}, ThreadNotFound),
    "unchanged, no thread": (Unchanged(1), None, {}, ThreadNotFound),
    "pending, no thread": (Pending("a1"), None, {"approval": OPEN}, ThreadNotFound),
    "owned by another": (Owned("other", 1), HELD, {"leased": True}, LeaseLost),
    "owned at an earlier epoch": (Owned(OWNER, 0), HELD, {"leased": True}, LeaseLost),
    "owned, given up": (Owned(OWNER, 1), FREE, {}, LeaseLost),
    "owned, appended": (
        Owned(OWNER, 1, next_seq=1, exact=True),
        HELD,
        {"leased": True},
        SequenceConflict,
    ),
    "quiet, appended": (Quiet(1), FREE, {}, SequenceConflict),
    "quiet, held": (Quiet(2), HELD, {"leased": True}, LeaseHeld),
    "unchanged, appended": (Unchanged(1), FREE, {}, SequenceConflict),
    "unchanged, ahead": (Unchanged(3), FREE, {}, SequenceConflict),
    "pending, unknown": (Pending("a1"), PARKED, {}, ApprovalNotFound),
    "pending, elsewhere": (
        Pending("a1"),
        PARKED,
        {"approval": replace(OPEN, thread_id="t2")},
        ApprovalNotFound,
    ),
    "pending, decided": (
        Pending("a1"),
        PARKED,
        {"approval": replace(OPEN, open=False)},
        ApprovalAlreadyDecided,
    ),
    "pending, appended": (
        Pending("a1", next_seq=PARKED.next_seq - 1, exact=True),
        PARKED,
        {"approval": OPEN},
        SequenceConflict,
    ),
    "pending and unchanged, late": (
        Pending("a1", next_seq=PARKED.next_seq, exact=True),
        PARKED,
        {"approval": LATE},
        ApprovalExpired,
    ),
    "pending, late": (Pending("a1"), PARKED, {"approval": LATE}, ApprovalExpired),
    "overdue, in time": (
        Pending("a1", overdue=True),
        PARKED,
        {"approval": OPEN},
        SequenceConflict,
    ),
    "overdue, decided": (
        Pending("a1", overdue=True),
        PARKED,
        {"approval": replace(LATE, open=False)},
        ApprovalAlreadyDecided,
    ),
}


@pytest.mark.parametrize("name", HOLDS)
def test_commit_whose_guard_holds_is_numbered_and_dated(name: str) -> None:
    guard, head, facts = HOLDS[name]
    first = head.next_seq if head else 1
    admission = admitted(guard, head, granted(), granted("g2"), **facts)
    assert [(event.seq, event.at) for event in admission.events] == [(first, NOW), (first + 1, NOW)]
    assert (admission.thread.next_seq, admission.thread.updated_at) == (first + 2, NOW)


def test_numbered_event_is_a_whole_copy_and_the_sent_one_stays_as_it_was() -> None:
    sent = granted()
    (kept,) = admitted(Unchanged(2), FREE, sent).events
    copied = sent.model_copy(update={"seq": 2, "at": NOW})
    assert (type(kept), kept, repr(kept)) == (type(copied), copied, repr(copied))
    assert kept.model_fields_set == set(type(sent).model_fields)
    assert kept.model_dump_json() == copied.model_dump_json()
    assert (kept.model_copy(), hash(kept)) == (copied, hash(copied))
    assert (sent.seq, sent) == (0, granted())
    with pytest.raises(ValidationError, match="frozen"):
        kept.__setattr__("seq", 3)


@pytest.mark.parametrize("name", FAILS)
def test_commit_whose_guard_fails_is_refused_with_its_own_error(name: str) -> None:
    guard, head, facts, error = FAILS[name]
    with pytest.raises(TealError) as refusal:
        admitted(guard, head, granted(), **facts)
    assert type(refusal.value) is error


def test_conflict_tells_where_the_log_is_now() -> None:
    with pytest.raises(SequenceConflict) as refusal:
        admitted(Unchanged(1), FREE)
    assert (refusal.value.thread_id, refusal.value.next_seq) == ("t", 2)
