"""What crosses threads: listings, inboxes, what is due, what has to run, and where an entry lies.

One server changes it in the same step as the thread. In a cluster it lies on other servers: what a
commit adds is added before it and once more after it, what it removes is removed after it. So a
process that dies in between leaves what points to nothing, which readers see and skip. Two
instances that change the same thread within the same moment may leave a hole, and so may a server
that fails over: `tidying` finds both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import orjson

from sk_agents.engine.models import EPOCH, Entry, EntryKind, Thread
from sk_agents.persistence.redis import scripts
from sk_agents.persistence.redis.keys import Keys, member
from sk_agents.redis_access import Command

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Change:
    """`name` is a command of Redis, or `DROP`: remove the key if it has this value."""

    name: str
    key: str
    values: tuple[Any, ...]
    adds: bool

    @property
    def command(self) -> Command:
        if self.name == "DROP":
            return scripts.DROP([self.key], *self.values)
        return (self.name, self.key, *self.values)


def arguments(changes: Sequence[Change], keys_before: int) -> tuple[list[str], list[Any]]:
    """The keys and values that `scripts` apply, which already has so many keys."""
    keys: dict[str, int] = {}
    values: list[Any] = []
    for change in changes:
        number = keys.setdefault(change.key, keys_before + len(keys) + 1)
        values += [len(change.values) + 2, change.name, number, *change.values]
    return [*keys], values


def of_commit(
    keys: Keys, before: Thread | None, after: Thread, entries: Iterable[Entry]
) -> Iterator[Change]:
    """What changes when a head becomes another one and these entries are written."""
    thread_id = after.thread_id
    if before is None:
        yield Change("ZADD", keys.threads, (0, thread_id), adds=True)
    place = (microseconds(after.updated_at), thread_id)
    yield Change("ZADD", keys.user_threads(after.user_id), place, adds=True)
    was = (before.runnable, before.owner) if before is not None else (False, None)
    if after.runnable and was != (True, after.owner):
        yield Change("HSET", keys.runnable, (thread_id, after.owner or ""), adds=True)
    elif was[0] and not after.runnable:
        yield Change("HDEL", keys.runnable, (thread_id,), adds=False)
    for entry in entries:
        yield from of_entry(keys, entry)


def of_entry(keys: Keys, entry: Entry) -> Iterator[Change]:
    yield Change("SET", keys.place(entry.kind, entry.key), (entry.thread_id,), adds=True)
    if entry.kind == "run":  # never open
        return
    name = member(entry.key, entry.thread_id)
    if entry.open:
        yield Change("ZADD", keys.open(entry.kind, entry.user_id), (0, name), adds=True)
    else:
        yield Change("ZREM", keys.open(entry.kind, entry.user_id), (name,), adds=False)
    if entry.open and entry.due_at is not None:
        due = microseconds(entry.due_at)
        yield Change("ZADD", keys.due(entry.kind), (due, name), adds=True)
    else:
        yield Change("ZREM", keys.due(entry.kind), (name,), adds=False)


def of_deletion(keys: Keys, thread: Thread, entries: Iterable[Entry]) -> Iterator[Change]:
    thread_id = thread.thread_id
    for entry in entries:
        yield Change("DROP", keys.place(entry.kind, entry.key), (thread_id,), adds=False)
        name = member(entry.key, thread_id)
        yield Change("ZREM", keys.open(entry.kind, entry.user_id), (name,), adds=False)
        yield Change("ZREM", keys.due(entry.kind), (name,), adds=False)
    yield Change("HDEL", keys.runnable, (thread_id,), adds=False)
    yield Change("ZREM", keys.user_threads(thread.user_id), (thread_id,), adds=False)
    yield Change("ZREM", keys.threads, (thread_id,), adds=False)


def field_of(kind: EntryKind, key: str) -> str:
    """Under which an entry lies among those of its thread."""
    return f"{kind}:{key}"


def read_member(name: bytes) -> tuple[str, str]:
    """The key and the thread of what `keys.member` made."""
    key, _, thread_id = name.decode("utf-8", "surrogatepass").rpartition("\0")
    return key, unquote(thread_id, errors="surrogatepass")


def encode_entry(entry: Entry) -> bytes:
    due = microseconds(entry.due_at) if entry.due_at is not None else None
    return orjson.dumps([entry.user_id, entry.run_id, entry.open, due])


def decode_entry(thread_id: str, name: bytes, value: bytes) -> Entry:
    kind, _, key = name.decode("utf-8", "surrogatepass").partition(":")
    user_id, run_id, is_open, due = orjson.loads(value)
    due_at = EPOCH + due * _MICROSECOND if due is not None else None
    return Entry(kind, key, thread_id, user_id, run_id, is_open, due_at)  # type: ignore[arg-type]


def microseconds(moment: datetime) -> int:
    """Exact, also as a sorted set's score."""
    return (moment.astimezone(UTC) - EPOCH) // _MICROSECOND
