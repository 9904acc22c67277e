"""All threads of one store taken to another one, of whatever kind.

A thread is copied as a whole or not at all, and one that is there already, byte for byte, is passed
over. So a migration that was killed goes on where it stopped, and to run it once more on a finished
one only verifies it. What a store keeps beside its threads stays behind: leases, marks, counters.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sk_agents.engine.models import Thread
from sk_agents.engine.ports import PortableStore, StoredRecord
from sk_agents.exceptions import ConfigurationError, StateCorrupt, ThreadExists, ThreadNotFound
from sk_agents.persistence.encoding import encode_head

# How many threads are under way at once.
AT_ONCE = 16
PAGE = 500

T = TypeVar("T")
# Is called with what is done, how many threads have been, and how many there are.
Told = Callable[[str, int, int], None]


@dataclass(slots=True)
class Migration:
    """What was done, and what the verification at the end found."""

    threads: int = 0
    events: int = 0
    copied: int = 0
    # Of all threads in the order of their ids: the same for equal stores, whatever their kind.
    digest: str = ""
    damaged: list[str] = field(default_factory=list)
    # Threads that the target had, and which are none of the source's.
    foreign: list[str] = field(default_factory=list)
    # Threads that are not alike in both, or were not any more at the end: the source was in use, or
    # the target had another one.
    different: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return not (self.damaged or self.different)


@dataclass(frozen=True, slots=True)
class State:
    """How far a thread had come when it was compared."""

    thread_id: str
    incarnation: str
    next_seq: int


@dataclass(frozen=True, slots=True)
class Alike:
    """A thread that is the same in both stores."""

    state: State
    digest: bytes


async def migrate_store(
    source: PortableStore, target: PortableStore, told: Told, *, merge: bool = False
) -> Migration:
    """Copy what is missing, then compare everything. Both stores are open.

    Raises:
        ConfigurationError: the target holds threads that are not the source's, and not `merge`.
    """
    done = Migration()
    ids = [thread_id async for thread_id in _all_threads(source)]
    done.foreign = await _foreign(source, target, set(ids))
    if done.foreign and not merge:
        raise ConfigurationError(
            f"the target is not empty: it holds {len(done.foreign)} conversations that the source"
            " does not have. --merge leaves them there"
        )

    async def copy(thread_id: str) -> None:
        if await _copied(source, target, thread_id):
            done.copied += 1

    async def compare(thread_id: str) -> Alike | None:
        return await _compared(source, target, thread_id, done)

    await _each(ids, copy, lambda count: told("copied", count, len(ids)))
    found = await _each(ids, compare, lambda count: told("verified", count, len(ids)))
    alike = {one.state.thread_id: one for one in found if one is not None}
    async for thread_id in _changed(source, {one.state for one in alike.values()}):
        if thread_id not in done.different and thread_id not in done.damaged:
            done.different.append(thread_id)
            alike.pop(thread_id, None)
    whole = hashlib.sha256()
    for one in alike.values():
        whole.update(one.digest)
        done.threads += 1
        done.events += one.state.next_seq - 1
    done.digest = whole.hexdigest()
    return done


async def _all_threads(store: PortableStore) -> AsyncIterator[str]:
    page: Sequence[str] = [""]
    while page := await store.all_threads(after=page[-1], limit=PAGE):
        for thread_id in page:
            yield thread_id


async def _changed(source: PortableStore, states: set[State]) -> AsyncIterator[str]:
    """The threads of the source that are not, or not any more, in one of these states: a server
    that still uses it has made, continued or removed them since they were compared."""
    left = {state.thread_id for state in states}
    page: Sequence[str] = [""]
    while page := await source.all_threads(after=page[-1], limit=PAGE):
        for head in await source.heads(page):
            if State(head.thread_id, head.incarnation, head.next_seq) not in states:
                yield head.thread_id
        left.difference_update(page)
    for thread_id in sorted(left):
        yield thread_id


async def _foreign(source: PortableStore, target: PortableStore, ids: set[str]) -> list[str]:
    """The target's threads that are not an earlier copy of the source's."""
    foreign: list[str] = []
    page: Sequence[str] = [""]
    while page := await target.all_threads(after=page[-1], limit=PAGE):
        known = [thread_id for thread_id in page if thread_id in ids]
        made = {head.thread_id: head.incarnation for head in await source.heads(known)}
        there = {head.thread_id: head.incarnation for head in await target.heads(known)}
        foreign += [
            thread_id
            for thread_id in page
            if thread_id not in ids or made.get(thread_id) != there.get(thread_id)
        ]
    return foreign


async def _copied(source: PortableStore, target: PortableStore, thread_id: str) -> bool:
    """Whether it was copied now. One of another incarnation in the target is left alone."""
    try:
        thread, records = await source.whole_thread(thread_id)
    except (StateCorrupt, ThreadNotFound):
        return False  # the comparison says so
    try:
        await target.restore(thread, records)
        return True
    except ThreadExists:
        pass
    try:
        there, its_records = await target.whole_thread(thread_id)
    except StateCorrupt:
        return False
    if there.incarnation != thread.incarnation or _is_same(thread, records, there, its_records):
        return False
    if its_records != records[: len(its_records)]:
        return False
    # The source went on after an earlier copy.
    await target.delete(thread_id, next_seq=there.next_seq, incarnation=there.incarnation)
    await target.restore(thread, records)
    return True


async def _compared(
    source: PortableStore, target: PortableStore, thread_id: str, done: Migration
) -> Alike | None:
    """What is known of a thread that is the same in both."""
    try:
        thread, records = await source.whole_thread(thread_id)
    except StateCorrupt:
        done.damaged.append(thread_id)
        return None
    except ThreadNotFound:
        done.different.append(thread_id)
        return None
    try:
        there, its_records = await target.whole_thread(thread_id)
    except (StateCorrupt, ThreadNotFound):
        done.different.append(thread_id)
        return None
    if not _is_same(thread, records, there, its_records):
        done.different.append(thread_id)
        return None
    state = State(thread_id, there.incarnation, there.next_seq)
    return Alike(state, _digest(there, its_records))


def _is_same(
    thread: Thread,
    records: Sequence[StoredRecord],
    there: Thread,
    its_records: Sequence[StoredRecord],
) -> bool:
    return _digest(thread, records) == _digest(there, its_records)


def _digest(thread: Thread, records: Sequence[StoredRecord]) -> bytes:
    digest = hashlib.sha256(encode_head(thread))
    for record in records:
        place = f"\n{record.first_seq} {record.commit_id} {len(record.body)}\n"
        digest.update(place.encode())
        digest.update(record.body)
    return digest.digest()


async def _each(
    ids: Sequence[str], work: Callable[[str], Awaitable[T]], told: Callable[[int], None]
) -> list[T]:
    """The results in the order of the ids; several at a time."""
    results: list[T] = []
    for start in range(0, len(ids), AT_ONCE):
        results += await asyncio.gather(*map(work, ids[start : start + AT_ONCE]))
        told(len(results))
    return results
