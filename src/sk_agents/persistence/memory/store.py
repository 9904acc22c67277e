"""Everything in this process's memory, gone with it. For tests and trying things out.

Copies go in and out: a caller does not change the log by changing what it gave or was given.
Bounded: past its limits a commit is refused with `StoreFull` and nothing is dropped silently.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.events import Event, within
from sk_agents.engine.log.commits import (
    Admission,
    Commit,
    Committed,
    Pending,
    admit,
    claimed,
    same_thread,
)
from sk_agents.engine.models import Durability, Entry, EntryKind, Thread
from sk_agents.engine.ports import Clock, Count, ThreadPage, ThreadQuery
from sk_agents.exceptions import StoreFull, ThreadNotFound
from sk_agents.persistence.counters import Counters
from sk_agents.persistence.encoding import Record, check_replay, encode_events, encode_head
from sk_agents.persistence.listing import (
    longest_untouched,
    mentions,
    open_page,
    overdue_page,
    page_of,
)
from sk_agents.persistence.liveness import check_deletable, mark_age

MAX_THREADS = 100_000
MAX_BYTES = 512 * 1024 * 1024


@dataclass(slots=True)
class ThreadLog:
    """One thread's head and events. Without a head the thread is not there yet."""

    thread_id: str
    head: Thread | None = None
    events: list[Event] = field(default_factory=list)
    commits: dict[str, Record] = field(default_factory=dict)

    def replayed(self, commit: Commit) -> Committed | None:
        """What a commit with this id did, if there was one. Raises CommitReused: it held other
        events."""
        record = self.commits.get(commit.commit_id)
        if record is None or self.head is None:
            return None
        return Committed(self.head, check_replay(record, commit.events))

    def append(self, commit_id: str, admission: Admission) -> None:
        first_seq = len(self.events) + 1
        self.head = admission.thread
        self.events.extend(admission.events)
        if admission.events:
            self.commits[commit_id] = Record(commit_id, first_seq, admission.events)

    def known_head(self) -> Thread:
        if self.head is None:
            raise ThreadNotFound(thread_id=self.thread_id)
        return self.head


class MemoryStore:
    durability = Durability.D0

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        max_threads: int = MAX_THREADS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._clock = clock or SystemClock()
        self._max_threads = max_threads
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._logs: dict[str, ThreadLog] = {}
        self._sizes: dict[str, int] = {}
        self._entries: dict[tuple[EntryKind, str], Entry] = {}
        self._alive_until: dict[str, float] = {}
        self._watched_at: dict[str, float] = {}
        self._counters = Counters()
        self._bytes = 0
        self._refused = 0

    def __str__(self) -> str:
        return "memory:"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        return None

    async def ping(self) -> None:
        return None

    async def commit(self, commit: Commit) -> Committed:
        size = len(encode_events(commit.events, self._clock.now()))
        with self._lock:
            log = self._logs.get(commit.thread_id) or ThreadLog(commit.thread_id)
            replayed = log.replayed(commit)
            if replayed is not None:
                return deepcopy(replayed)
            admission = self._admit(commit, log, self._clock.now())
            encode_head(admission.thread)  # refuses what a store on disk could not keep
            if not commit.makes_room:
                self._make_room(log, size)
            log.append(commit.commit_id, deepcopy(admission))
            self._logs[commit.thread_id] = log
            self._sizes[commit.thread_id] = self._sizes.get(commit.thread_id, 0) + size
            self._bytes += size
            for entry in admission.entries:
                self._entries[entry.kind, entry.key] = entry
            return Committed(admission.thread, admission.events)

    async def claim(self, thread_id: str, owner: str) -> Thread:
        with self._lock:
            log = self._log(thread_id)
            head = log.known_head()
            log.head = claimed(head, owner, leased=self._is_leased(head), now=self._clock.now())
            return deepcopy(log.head)

    def renew(self, owner: str, ttl: float) -> None:
        with self._lock:
            self._alive_until[owner] = self._clock.monotonic() + ttl

    async def retire(self, owner: str) -> None:
        with self._lock:
            self._alive_until.pop(owner, None)

    async def thread(self, thread_id: str) -> Thread:
        with self._lock:
            return deepcopy(self._log(thread_id).known_head())

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        with self._lock:
            logs = [log for key in set(thread_ids) if (log := self._logs.get(key)) is not None]
            return deepcopy([log.head for log in logs if log.head is not None])

    async def events_after(
        self,
        thread_id: str,
        seq: int,
        limit: int = 500,
        *,
        incarnation: str | None = None,
        max_bytes: int | None = None,
    ) -> Sequence[Event]:
        with self._lock:
            log = self._log(thread_id)
            same_thread(thread_id, log.head, incarnation)
            events = log.events[max(seq, 0) : max(seq, 0) + limit]
            return deepcopy(events if max_bytes is None else within(events, max_bytes))

    async def find(self, kind: EntryKind, key: str) -> Entry | None:
        with self._lock:
            return self._entries.get((kind, key))

    async def open_entries(
        self, kind: EntryKind, user_id: str, *, after: str | None = None, limit: int = 100
    ) -> Sequence[Entry]:
        with self._lock:
            return open_page(self._entries.values(), kind, user_id, after, limit)

    async def overdue(self, kind: EntryKind, limit: int = 100) -> Sequence[Entry]:
        with self._lock:
            return overdue_page(self._entries.values(), kind, self._clock.now(), limit)

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        with self._lock:
            heads = [
                head
                for log in self._logs.values()
                if (head := log.head) is not None
                and (query.text is None or mentions(head, log.events, query.text))
            ]
        return deepcopy(page_of(heads, query))

    async def all_threads(self, *, after: str = "", limit: int = 500) -> Sequence[str]:
        with self._lock:
            return sorted(thread_id for thread_id in self._logs if thread_id > after)[:limit]

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        with self._lock:
            lost = [
                head
                for log in self._logs.values()
                if (head := log.head) and head.runnable and not self._is_leased(head)
            ]
        return deepcopy(longest_untouched(lost, limit))

    async def mark_watched(self, run_ids: Collection[str], *, ago: float = 0.0) -> None:
        now = self._clock.monotonic()
        with self._lock:
            old = [run_id for run_id, at in self._watched_at.items() if mark_age(at, now) is None]
            for run_id in old:
                del self._watched_at[run_id]
            for run_id in run_ids:
                self._watched_at[run_id] = max(now - ago, self._watched_at.get(run_id, now - ago))

    async def unwatched_for(self, run_id: str) -> float | None:
        with self._lock:
            return mark_age(self._watched_at.get(run_id), self._clock.monotonic())

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        with self._lock:
            return self._counters.count(additions, self._clock.now().timestamp())[0]

    async def sums(self, prefix: str) -> Mapping[str, int]:
        with self._lock:
            return self._counters.sums(prefix, self._clock.now().timestamp())

    async def delete(
        self, thread_id: str, *, next_seq: int, incarnation: str | None = None
    ) -> None:
        with self._lock:
            head = self._log(thread_id).head
            check_deletable(thread_id, head, next_seq, incarnation, leased=self._is_leased(head))
            del self._logs[thread_id]
            self._bytes -= self._sizes.pop(thread_id)
            self._drop_entries(thread_id)

    def metrics(self) -> Mapping[str, float]:
        with self._lock:
            return {
                "threads": len(self._logs),
                "threads_max": self._max_threads,
                "events": sum(len(log.events) for log in self._logs.values()),
                "bytes": self._bytes,
                "bytes_max": self._max_bytes,
                "commits_refused_full": self._refused,
            }

    def _log(self, thread_id: str) -> ThreadLog:
        try:
            return self._logs[thread_id]
        except KeyError:
            raise ThreadNotFound(thread_id=thread_id) from None

    def _admit(self, commit: Commit, log: ThreadLog, now: datetime) -> Admission:
        approval = None
        if isinstance(commit.guard, Pending):
            approval = self._entries.get(("approval", commit.guard.approval_id))
        leased = self._is_leased(log.head)
        return admit(commit, log.head, leased=leased, approval=approval, now=now)

    def _is_leased(self, head: Thread | None) -> bool:
        if head is None or head.owner is None:
            return False
        return self._alive_until.get(head.owner, 0.0) > self._clock.monotonic()

    def _drop_entries(self, thread_id: str) -> None:
        for key in [k for k, entry in self._entries.items() if entry.thread_id == thread_id]:
            del self._entries[key]

    def _make_room(self, log: ThreadLog, size: int) -> None:
        too_many = log.head is None and len(self._logs) >= self._max_threads
        if too_many or self._bytes + size > self._max_bytes:
            self._refused += 1
            raise StoreFull(
                f"The memory store is full ({len(self._logs)} threads, {self._bytes} bytes); "
                "delete threads or use a store on disk.",
                thread_id=log.thread_id,
            )


class EphemeralStore(MemoryStore):
    """The log of one stateless invocation: numbered, readable while it runs, dropped at its end.

    Nothing else can reach it, so no lease runs out and nothing is ever recovered.
    """

    def __str__(self) -> str:
        return "ephemeral:"

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        return []

    def _is_leased(self, head: Thread | None) -> bool:
        return head is not None and head.owner is not None
