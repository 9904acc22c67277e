"""What happens at a server and belongs to no thread, in a thread of its own.

It is an ordinary thread with an id that no API gives out, so every store keeps it, encrypts it and
chains it like any other. Processes that share a store share it: each commit says how far its sender
had read, and is decided again if another process was faster. A thread of many events is slow in
some stores, so the log goes on in another one, whose first note names the chain of the one before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sk_agents.audit.reading import thread_trail
from sk_agents.audit.trail import ThreadTrail, kept_call
from sk_agents.engine.events import DELETING, Event, Noted, ThreadChanged
from sk_agents.engine.log.commits import Absent, Commit, Committed, Unchanged
from sk_agents.engine.log.state import merge_metadata
from sk_agents.engine.models import NewThread, Thread, server_log_part
from sk_agents.engine.ports import Ids, PortableStore, Store
from sk_agents.exceptions import (
    CommitOutcomeUnknown,
    SequenceConflict,
    StoreBusy,
    StoreUnavailable,
    TealError,
    ThreadExists,
    ThreadNotFound,
)
from sk_agents.wire.views import AuditEntry

logger = logging.getLogger(__name__)

# No caller has this id: one with a control character is refused.
_USER_ID = "\x01server"
SURFACE = "audit"
# Of one part of the log; the commit that passes it is its last one.
PART_EVENTS = 50_000
CONTINUED = "continued"
# Of one commit.
MOST_NOTES = 200
RACES = 100
RESENDS = 3
# Counted notes wait so long, and longer the more of them come: an outsider who is refused a
# thousand times a second must not fill the disk.
COUNT_SECONDS = 10.0
MOST_COUNT_SECONDS = 300.0
MOST_COUNTED = 20
OTHERS = "others"


# What to append, given the log's labels as they are then; nothing if there is nothing to say any
# more. May be called several times.
Build = Callable[[Mapping[str, Any]], Sequence[Event]]


@dataclass(slots=True)
class AuditJob:
    build: Build
    done: asyncio.Future[Thread | None]


class ServerLog:
    """Implements `Audit`. `async with` it: entered after the store and left before it."""

    def __init__(self, store: Store, ids: Ids) -> None:
        self.store = store
        self._ids = ids
        # The head of the part that is written to, and its number from 1 on.
        self._head: Thread | None = None
        self._part = 1
        self._is_read = False
        self._jobs: list[AuditJob] = []
        self._writer: asyncio.Task[None] | None = None
        self._counted: dict[tuple[str, ...], Noted] = {}
        self._counter: asyncio.Task[None] | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        self._counter = asyncio.get_running_loop().create_task(self._write_counted_regularly())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._counter is not None:
            self._counter.cancel()
            await asyncio.gather(self._counter, return_exceptions=True)
        try:
            await self.write_counted()
        except TealError as error:
            logger.warning("the audit log was not written", extra={"error": type(error).__name__})
        self._is_open = False
        if self._writer is not None:
            await asyncio.gather(self._writer, return_exceptions=True)

    async def note(self, *notes: Noted) -> None:
        await self.append(lambda labels: notes)

    async def keep_calls(self, thread: Thread, events: Sequence[Event]) -> None:
        await self._keep(ThreadTrail(thread).entries(events))

    async def deleting(self, thread: Thread, *, who: str | None, reason: str) -> None:
        if isinstance(self.store, PortableStore):
            found = [entry async for entry in thread_trail(self.store, thread)]
            await self._keep(found)
        await self.note(
            Noted(
                what=DELETING,
                who=who,
                subject=thread.thread_id,
                user_id=thread.user_id,
                agent=thread.agent or None,
                outcome=reason,
                digest=thread.chain or None,
                details={
                    "incarnation": thread.incarnation,
                    "next_seq": thread.next_seq,
                    "surface": thread.surface,
                },
            )
        )

    async def _keep(self, entries: Iterable[AuditEntry]) -> None:
        notes = [kept_call(entry) for entry in entries]
        for start in range(0, len(notes), MOST_NOTES):
            await self.note(*notes[start : start + MOST_NOTES])

    def count(self, note: Noted) -> None:
        key = (note.what, note.subject or "", note.outcome or "")
        if key not in self._counted and len(self._counted) >= MOST_COUNTED:
            note = Noted(what=note.what, subject=OTHERS)
            key = (note.what, OTHERS, "")
        before = self._counted.get(key)
        total = note.count + (before.count if before is not None else 0)
        self._counted[key] = note.model_copy(update={"count": total})

    async def write_counted(self) -> int:
        """Write what was counted since the last time; how many notes that were. Raises
        StoreError: they are kept until the next time."""
        counted, self._counted = self._counted, {}
        if not counted:
            return 0
        try:
            await self.note(*counted.values())
        except TealError:
            for note in counted.values():
                self.count(note)
            raise
        return len(counted)

    async def append(self, build: Build) -> Thread | None:
        """Append what `build` gives; durable when it returns. The head after it; `None` if there
        is no log yet and there was nothing to append.

        Raises:
            StoreError, StoreFull: it is not known to be stored.
        """
        if not self._is_open:
            raise StoreUnavailable("The audit log is closed.")
        loop = asyncio.get_running_loop()
        job = AuditJob(build, loop.create_future())
        self._jobs.append(job)
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write())
        return await job.done

    async def _write(self) -> None:
        while self._jobs:
            jobs, self._jobs = self._jobs[:MOST_NOTES], self._jobs[MOST_NOTES:]
            try:
                head = await self._commit(jobs)
            except TealError as error:
                self._is_read = False
                for job in jobs:
                    if not job.done.done():
                        job.done.set_exception(error)
                continue
            for job in jobs:
                if not job.done.done():  # else its caller was cancelled
                    job.done.set_result(head)

    async def _commit(self, jobs: Sequence[AuditJob]) -> Thread | None:
        commit_id = self._ids.new()
        for _ in range(RACES):
            if not self._is_read:
                await self._read_on()
            head = self._head
            events = _built(jobs, head.metadata if head is not None else {})
            if not events:
                return head
            try:
                done = await self._send(self._next_commit(commit_id, head, events))
            except (SequenceConflict, ThreadExists, ThreadNotFound):
                self._is_read = False
                continue
            if self._head is not None and self._head.thread_id != done.thread.thread_id:
                self._part += 1
            self._head = done.thread
            return done.thread
        raise StoreBusy("The audit log changes all the time.")

    def _next_commit(
        self, commit_id: str, head: Thread | None, events: tuple[Event, ...]
    ) -> Commit:
        if head is not None and head.next_seq <= PART_EVENTS:
            guard = Unchanged(head.next_seq)
            return Commit(head.thread_id, commit_id, guard, events, incarnation=head.incarnation)
        if head is None:
            return Commit(server_log_part(1), commit_id, Absent(_NEW), events)
        follows = Noted(
            what=CONTINUED,
            subject=head.thread_id,
            digest=head.chain,
            details={"incarnation": head.incarnation, "next_seq": head.next_seq},
        )
        state = ThreadChanged(metadata=dict(head.metadata))
        new = replace(_NEW, metadata=head.metadata)
        following = server_log_part(self._part + 1)
        return Commit(following, commit_id, Absent(new), (follows, state, *events))

    async def _read_on(self) -> None:
        """Find the part that is written to now."""
        self._head = await self._find(self._part)
        while self._head is not None and self._head.next_seq > PART_EVENTS:
            following = await self._find(self._part + 1)
            if following is None:
                break
            self._head = following
            self._part += 1
        self._is_read = True

    async def _find(self, part: int) -> Thread | None:
        try:
            return await self.store.thread(server_log_part(part))
        except ThreadNotFound:
            return None

    async def _send(self, commit: Commit) -> Committed:
        for _ in range(RESENDS):
            try:
                return await self.store.commit(commit)
            except CommitOutcomeUnknown:
                continue
        return await self.store.commit(commit)

    async def _write_counted_regularly(self) -> None:
        pause = COUNT_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                written = await self.write_counted()
            except TealError as error:
                logger.warning(
                    "the audit log was not written", extra={"error": type(error).__name__}
                )
                continue
            is_flooded = written >= MOST_COUNTED
            pause = min(2 * pause, MOST_COUNT_SECONDS) if is_flooded else COUNT_SECONDS


_NEW = NewThread(user_id=_USER_ID, surface=SURFACE)


def _built(jobs: Sequence[AuditJob], labels: Mapping[str, Any]) -> tuple[Event, ...]:
    """Each job sees what those before it have changed."""
    events: list[Event] = []
    labels = dict(labels)
    for job in jobs:
        for event in job.build(labels):
            events.append(event)
            if isinstance(event, ThreadChanged):
                labels = merge_metadata(labels, event.metadata)
    return tuple(events)


def remembered(name: str, value: Mapping[str, str]) -> Build:
    """Notes of how a table differs from what the log says it was, and what it is from now on.

    A note is called `<name>_changed`, is about one key, and says what became of it.
    """

    def build(labels: Mapping[str, Any]) -> list[Event]:
        known: Any = labels.get(name)
        before: Mapping[str, str] = known if isinstance(known, dict) else {}
        if before == value:
            return []
        keys = sorted(
            key for key in before.keys() | value.keys() if before.get(key) != value.get(key)
        )
        notes = [_change(name, key, before.get(key), value.get(key)) for key in keys]
        return [*notes, ThreadChanged(metadata={name: dict(value)})]

    return build


def _change(name: str, key: str, before: str | None, after: str | None) -> Noted:
    outcome = "removed" if after is None else "added" if before is None else "changed"
    details = {key: text for key, text in (("before", before), ("after", after)) if text}
    return Noted(what=f"{name}_changed", subject=key, outcome=outcome, details=details)
