"""Heads to commit on: a held thread, a free one and a parked one."""

from dataclasses import replace

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import (
    Absent,
    Admission,
    Claim,
    Commit,
    Guard,
    LeaseChange,
    Park,
    Unchanged,
    admit,
)
from sk_agents.engine.models import Entry, NewThread, Thread
from tests.engine.builders import (
    asked,
    moment,
    proposed,
    started,
)
from tests.engine.histories import OWNER

NOW = moment(100)
NEW = NewThread(
    user_id="ada", session_id="s", wire_id="w", surface="chats", agent="a", metadata={"k": 1}
)
OPEN = Entry("approval", "a1", "t", "ada", "r1", open=True, due_at=moment(200))
LATE = replace(OPEN, due_at=moment(100))


def admitted(
    guard: Guard,
    head: Thread | None,
    *events: Event,
    lease: LeaseChange | None = None,
    leased: bool = False,
    approval: Entry | None = None,
) -> Admission:
    commit = Commit("t", "commit", guard, events, lease)
    return admit(commit, head, leased=leased, approval=approval, now=NOW)


def head_after(*events: Event, lease: LeaseChange | None = None) -> Thread:
    """A new thread's head after one commit."""
    return admitted(Absent(NEW), None, *events, lease=lease).thread


def moved(head: Thread, *events: Event, lease: LeaseChange | None = None) -> Thread:
    leased = head.owner is not None
    return admitted(Unchanged(head.next_seq), head, *events, lease=lease, leased=leased).thread


HELD = head_after(started(), lease=Claim(OWNER))
FREE = HELD._replace(owner=None)
PARKED = moved(HELD, proposed(), asked(), lease=Park())
