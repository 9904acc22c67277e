"""Ready-made commits for those who test a store."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from sk_agents.engine.events import (
    Answered,
    ApprovalDecided,
    ApprovalRequested,
    CancelRequested,
    Event,
    RunEnded,
    RunQueued,
    RunStarted,
    Thinking,
    ToolProposed,
)
from sk_agents.engine.log.commits import (
    Absent,
    Claim,
    Commit,
    Guard,
    LeaseChange,
    Owned,
    Park,
    Pending,
    Unchanged,
)
from sk_agents.engine.models import (
    Audience,
    NewThread,
    Part,
    Review,
    RunStatus,
    Thread,
    UserInput,
)

USER = "ann"

EndStatus = Literal[RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED]
Outcome = Literal["approved", "rejected", "expired", "withdrawn"]


def new_commit(
    thread_id: str, guard: Guard, *events: Event, lease: LeaseChange | None = None
) -> Commit:
    """A commit with an id of its own."""
    return Commit(thread_id, uuid.uuid4().hex, guard, events, lease)


def create(
    thread_id: str,
    *events: Event,
    user: str = USER,
    surface: str = "",
    session: str = "",
    metadata: Mapping[str, Any] | None = None,
    lease: LeaseChange | None = None,
) -> Commit:
    """Make the thread."""
    new = NewThread(
        user_id=user, surface=surface, session_id=session, metadata=metadata or {}, agent="agent"
    )
    return new_commit(thread_id, Absent(new), *events, lease=lease)


def start_run(
    thread_id: str,
    run_id: str = "run-1",
    *,
    text: str = "hello",
    user: str = USER,
    owner: str | None = None,
) -> Commit:
    """Make the thread with a run under way, held by `owner` if one is given."""
    lease = Claim(owner) if owner is not None else None
    return create(thread_id, run_started(run_id, text), user=user, lease=lease)


def append(thread: Thread, *events: Event, lease: LeaseChange | None = None) -> Commit:
    """Add events iff nothing was added since `thread` was read."""
    return new_commit(thread.thread_id, Unchanged(thread.next_seq), *events, lease=lease)


def append_owned(
    thread: Thread, *events: Event, lease: LeaseChange | None = None, next_seq: int | None = None
) -> Commit:
    """Add events as the owner that `thread` names; with `next_seq`, iff nothing was added."""
    assert thread.owner is not None
    seen = thread.next_seq if next_seq is None else next_seq
    guard = Owned(thread.owner, thread.epoch, seen, exact=next_seq is not None)
    return new_commit(thread.thread_id, guard, *events, lease=lease)


def ask(
    thread: Thread, approval_id: str, *, due_at: datetime | None = None, park: bool = False
) -> Commit:
    """Propose a call and ask for its approval; with `park`, wait for it without an owner."""
    run_id = thread.active_run or "run-1"
    call = call_proposed(f"call-of-{approval_id}", run_id)
    asked = approval(approval_id, run_id, due_at=due_at)
    return append(thread, call, asked, lease=Park() if park else None)


def decide(
    thread_id: str,
    approval_id: str,
    outcome: Outcome = "approved",
    *,
    overdue: bool = False,
    decided_by: str = USER,
    run_id: str = "run-1",
    lease: LeaseChange | None = None,
) -> Commit:
    """Decide the approval iff it is undecided."""
    event = decision(approval_id, outcome, decided_by=decided_by, run_id=run_id)
    return new_commit(thread_id, Pending(approval_id, overdue), event, lease=lease)


def said(text: str) -> UserInput:
    return UserInput(parts=(Part(content=text),))


def run_started(run_id: str = "run-1", text: str = "hello") -> RunStarted:
    return RunStarted(run_id=run_id, message=said(text))


def run_queued(run_id: str, text: str = "and then") -> RunQueued:
    return RunQueued(run_id=run_id, message=said(text))


def run_ended(run_id: str = "run-1", status: EndStatus = RunStatus.COMPLETED) -> RunEnded:
    return RunEnded(run_id=run_id, status=status)


def thought(content: str = "hm", run_id: str = "run-1") -> Thinking:
    return Thinking(run_id=run_id, round=1, content=content)


def answered(content: str, run_id: str = "run-1") -> Answered:
    return Answered(run_id=run_id, content=content)


def cancel_requested(run_id: str = "run-1") -> CancelRequested:
    return CancelRequested(run_id=run_id, requested_by=USER)


def call_proposed(
    call_id: str, run_id: str = "run-1", arguments: dict[str, Any] | None = None
) -> ToolProposed:
    return ToolProposed(
        run_id=run_id,
        round=1,
        call_id=call_id,
        plugin_name="files",
        function_name="write",
        arguments={"path": "notes.txt"} if arguments is None else arguments,
    )


def approval(
    approval_id: str,
    run_id: str = "run-1",
    *,
    due_at: datetime | None = None,
    audience: Audience | None = None,
) -> ApprovalRequested:
    return ApprovalRequested(
        run_id=run_id,
        approval_id=approval_id,
        call_id=f"call-of-{approval_id}",
        digest="0" * 64,
        shown={"path": "notes.txt"},
        expires_at=due_at,
        review=Review(audience=audience) if audience is not None else None,
    )


def decision(
    approval_id: str,
    outcome: Outcome = "approved",
    *,
    decided_by: str = USER,
    run_id: str = "run-1",
    audience: Audience | None = None,
) -> ApprovalDecided:
    return ApprovalDecided(
        run_id=run_id,
        approval_id=approval_id,
        call_id=f"call-of-{approval_id}",
        outcome=outcome,
        by="timeout" if outcome == "expired" else "human",
        decided_by=None if outcome == "expired" else decided_by,
        audience=audience,
    )
