"""One thread's head and records in memory, and the rule for adding to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Admission, Commit, Committed, admit
from sk_agents.engine.models import Entry, Thread
from sk_agents.exceptions import ThreadNotFound
from sk_agents.persistence.record import Record, check_replay


@dataclass(slots=True)
class ThreadLog:
    thread_id: str
    head: Thread | None = None
    events: list[Event] = field(default_factory=list)
    commits: dict[str, Record] = field(default_factory=dict)

    def replayed(self, commit: Commit) -> Committed | None:
        """What a commit with this id did, if there was one.

        Raises:
            CommitReused: it held other events.
        """
        record = self.commits.get(commit.commit_id)
        if record is None or self.head is None:
            return None
        return Committed(self.head, check_replay(record, commit.events))

    def admit(
        self, commit: Commit, *, leased: bool, approval: Entry | None, now: datetime
    ) -> Admission:
        return admit(commit, self.head, leased=leased, approval=approval, now=now)

    def append(self, commit_id: str, admission: Admission) -> None:
        first_seq = len(self.events) + 1
        self.head = admission.thread
        self.events.extend(admission.events)
        if admission.events:
            self.commits[commit_id] = Record(commit_id, first_seq, admission.events)

    def after(self, seq: int, limit: int) -> Sequence[Event]:
        return self.events[max(seq, 0) : max(seq, 0) + limit]

    def known_head(self) -> Thread:
        if self.head is None:
            raise ThreadNotFound(thread_id=self.thread_id)
        return self.head
