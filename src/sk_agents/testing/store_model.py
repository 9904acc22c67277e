"""The contract of a store once more, in plain dicts: slow, small and written on its own.

It shares no rule with the stores: where a store and this model disagree, one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sk_agents import exceptions as errors
from sk_agents.engine.events import Event
from sk_agents.engine.log import commits as c
from sk_agents.engine.ports import Clock, Count

Row = dict[str, Any]
ENTRY_OF = {
    "run_queued": ("run", "run_id"),
    "run_started": ("run", "run_id"),
    "approval_requested": ("approval", "approval_id"),
    "approval_decided": ("approval", "approval_id"),
    "grant_changed": ("grant", "grant_id"),
}

# What only comes of a run that moves on by itself.
PROGRESS = {"answered", "thinking", "tool_finished", "tool_proposed"}


@dataclass
class StoreModel:
    clock: Clock
    heads: dict[str, Row] = field(default_factory=dict)
    logs: dict[str, list[Event]] = field(default_factory=dict)
    sent: dict[tuple[str, str], tuple[c.Commit, list[Event]]] = field(default_factory=dict)
    entries: dict[tuple[str, str], Row] = field(default_factory=dict)
    alive: dict[str, float] = field(default_factory=dict)
    counters: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    # When those that were forgotten ended.
    ends: dict[str, datetime] = field(default_factory=dict)

    def commit(self, commit: c.Commit) -> tuple[Row, list[Event]]:
        """The head after the commit and its events, or the error it must be refused with."""
        before = self.sent.get((commit.thread_id, commit.commit_id))
        if before is not None:
            if before[0].events != commit.events:
                raise errors.CommitReused
            return self.heads[commit.thread_id], before[1]
        self._check(commit)
        now = self.clock.now()
        if isinstance(commit.guard, c.Absent):
            self._create(commit.thread_id, commit.guard, now)
        head, log = dict(self.heads[commit.thread_id]), self.logs[commit.thread_id]
        held = self.is_held(commit.thread_id)
        stored: list[Event] = []
        for event in commit.events:
            stored.append(event.model_copy(update={"seq": len(log) + len(stored) + 1, "at": now}))
            move(head, event.model_dump(), event.type)
            self._index(head, event.model_dump(), event.type)
        if isinstance(commit.guard, c.Owned) and PROGRESS.intersection(e.type for e in stored):
            head["recoveries"] = 0
        head.update(updated_at=now, next_seq=len(log) + len(stored) + 1)
        change_lease(head, commit, held)
        self.heads[commit.thread_id] = head
        log.extend(stored)
        if stored:
            self.sent[commit.thread_id, commit.commit_id] = (commit, stored)
        return head, stored

    def count(self, additions: Sequence[Count]) -> list[int]:
        now = self.clock.now()
        self.ends |= {key: row[1] for key, row in self.counters.items() if now >= row[1]}
        self.counters = {key: row for key, row in self.counters.items() if now < row[1]}
        left = dict(self.counters)
        for added in additions:
            total, end = left.get(added.key, (0, now + timedelta(seconds=added.ttl)))
            if added.amount > 0 and added.at_most is not None:
                if total + added.amount > added.at_most:
                    raise errors.CounterFull
            if added.amount > 0 or added.key in left:
                left[added.key] = (max(0, total + added.amount), end)
        self.counters = left
        self.ends = {key: end for key, end in self.ends.items() if key not in left}
        return [left.get(added.key, (0, now))[0] for added in additions]

    def is_doubtful(self, key: str) -> bool:
        """Whether a store may know the counter or not: it ended, and then the clock was set back
        to before its end. Stores remove what has ended when it suits them.
        """
        return self.clock.now() < self.ends.get(key, self.clock.now())

    def sums(self) -> dict[str, int]:
        return {key: row[0] for key, row in self.counters.items() if self.clock.now() < row[1]}

    def claim(self, thread_id: str, owner: str) -> Row:
        head = self.head(thread_id)
        if self.is_held(thread_id):
            raise errors.LeaseHeld
        head["recoveries"] += head["owner"] is not None
        head["epoch"] += 1
        head.update(owner=owner, updated_at=self.clock.now())
        return head

    def renew(self, owner: str, ttl: float) -> None:
        self.alive[owner] = self.clock.monotonic() + ttl

    def retire(self, owner: str) -> None:
        self.alive.pop(owner, None)

    def delete(self, thread_id: str, next_seq: int) -> None:
        if self.head(thread_id)["next_seq"] != next_seq:
            raise errors.SequenceConflict
        if self.is_held(thread_id):
            raise errors.LeaseHeld
        del self.heads[thread_id], self.logs[thread_id]
        self.sent = {key: sent for key, sent in self.sent.items() if key[0] != thread_id}
        self.entries = {k: row for k, row in self.entries.items() if row["thread_id"] != thread_id}

    def head(self, thread_id: str) -> Row:
        if thread_id not in self.heads:
            raise errors.ThreadNotFound
        return self.heads[thread_id]

    def is_held(self, thread_id: str) -> bool:
        owner = self.heads[thread_id]["owner"]
        return owner in self.alive and self.clock.monotonic() < self.alive[owner]

    def orphans(self) -> list[str]:
        lost = [name for name, head in self.heads.items() if head["runnable"]]
        return oldest_first(self.heads[name] for name in lost if not self.is_held(name))

    def listed(self, user_id: str) -> list[str]:
        return oldest_first(h for h in self.heads.values() if h["user_id"] == user_id)[::-1]

    def open_keys(self, kind: str, user_id: str) -> list[str]:
        return sorted(
            key
            for (its_kind, key), row in self.entries.items()
            if its_kind == kind and row["open"] and row["user_id"] == user_id
        )

    def overdue_keys(self) -> set[str]:
        now = self.clock.now()
        return {key for (_, key), r in self.entries.items() if r["open"] and is_due(r, now)}

    def _check(self, commit: c.Commit) -> None:
        exists = commit.thread_id in self.heads
        match commit.guard:
            case c.Absent() if exists:
                raise errors.ThreadExists
            case c.Absent():
                return
        head = self.head(commit.thread_id)
        match commit.guard:
            case c.Owned(owner, epoch) if head["owner"] != owner or head["epoch"] != epoch:
                raise errors.LeaseLost
            case c.Owned(next_seq=seq, exact=True) if seq != head["next_seq"]:
                raise errors.SequenceConflict
            case c.Quiet(seq) | c.Unchanged(seq) if seq != head["next_seq"]:
                raise errors.SequenceConflict
            case c.Quiet() if self.is_held(commit.thread_id):
                raise errors.LeaseHeld
            case c.Pending(next_seq=seq, exact=True) if seq != head["next_seq"]:
                raise errors.SequenceConflict
            case c.Pending(approval_id, overdue):
                self._check_pending(commit.thread_id, approval_id, overdue)

    def _check_pending(self, thread_id: str, approval_id: str, overdue: bool) -> None:
        row = self.entries.get(("approval", approval_id))
        if row is None or row["thread_id"] != thread_id:
            raise errors.ApprovalNotFound
        if not row["open"]:
            raise errors.ApprovalAlreadyDecided
        if is_due(row, self.clock.now()) != overdue:
            raise errors.SequenceConflict if overdue else errors.ApprovalExpired

    def _create(self, thread_id: str, guard: c.Absent, now: datetime) -> None:
        self.logs[thread_id] = []
        self.heads[thread_id] = {
            "thread_id": thread_id,
            "user_id": guard.new.user_id,
            "metadata": dict(guard.new.metadata),
            "status": "idle",
            "runnable": False,
            "epoch": 0,
            "owner": None,
            "next_seq": 1,
            "active_run": None,
            "head_run": None,
            "queued": 0,
            "recoveries": 0,
            "created_at": now,
            "updated_at": now,
        }

    def _index(self, head: Row, event: Row, kind: str) -> None:
        if kind not in ENTRY_OF or (kind == "run_started" and event["message"] is None):
            return
        entry_kind, key = ENTRY_OF[kind]
        self.entries[entry_kind, event[key]] = {
            "thread_id": head["thread_id"],
            "user_id": head["user_id"],
            "run_id": event["run_id"],
            "open": kind == "approval_requested" or bool(event.get("granted")),
            "due_at": event.get("expires_at"),
        }


def move(head: Row, event: Row, kind: str) -> None:
    """What one event does to a head."""
    is_active = head["active_run"] is not None and event["run_id"] == head["active_run"]
    if kind == "run_started":
        head["queued"] -= event["message"] is None
        head.update(status="running", active_run=event["run_id"], head_run=event["run_id"])
        head.update(runnable=True, recoveries=0)
    elif kind == "run_queued":
        head["queued"] += 1
        if head["active_run"] is None:
            head["runnable"] = True
    elif kind == "run_ended" and is_active:
        head.update(status=event["status"], active_run=None, recoveries=0)
        head["runnable"] = head["queued"] > 0
    elif kind == "run_ended":
        head["queued"] -= 1
        if head["active_run"] is None and head["queued"] == 0:
            head["runnable"] = False
    elif kind in ("approval_decided", "cancel_requested") and is_active:
        head.update(status="running", runnable=True, recoveries=0)
    elif kind == "imported" and head["active_run"] is None:
        head["status"] = event["status"] or head["status"]
    elif kind == "branch_changed":
        head["head_run"] = event["head_run"]
    elif kind == "thread_changed":
        merged = head["metadata"] | event["metadata"]
        head["metadata"] = {key: value for key, value in merged.items() if value is not None}


def change_lease(head: Row, commit: c.Commit, held: bool) -> None:
    """What the commit does to the lease; `held` by a live owner until now."""
    match commit.lease:
        case c.Claim(owner) | c.ClaimIfFree(owner) if not held:
            head.update(owner=owner, epoch=head["epoch"] + 1)
            if head["active_run"] is not None:
                head["status"] = "running"
        case c.Release():
            head["owner"] = None
        case c.Park():
            head.update(owner=None, runnable=False, status="waiting")
        case None if isinstance(commit.guard, c.Quiet):
            head.update(owner=None, epoch=head["epoch"] + 1)


def is_due(row: Row, now: datetime) -> bool:
    return row["due_at"] is not None and row["due_at"] <= now


def oldest_first(heads: Iterable[Row]) -> list[str]:
    return [name for _, name in sorted((head["updated_at"], head["thread_id"]) for head in heads)]
