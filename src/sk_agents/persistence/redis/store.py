"""A store for any number of instances: one Redis or Valkey server, its replicas, or a cluster.

Leases and marks go by the server's clock. What is acknowledged is as safe as the server's own
settings make it, which are looked at when the store is opened.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from itertools import chain
from sys import maxsize
from typing import Any, Self

from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Commit, Committed, same_thread
from sk_agents.engine.models import Durability, Entry, EntryKind, Thread
from sk_agents.engine.ports import Clock, Count, StoredRecord, ThreadPage, ThreadQuery
from sk_agents.exceptions import StoreUnavailable, ThreadExists, ThreadNotFound
from sk_agents.persistence.codec import PLAIN, RecordCodec
from sk_agents.persistence.counters import Counter, counted
from sk_agents.persistence.encoding import encoded_events
from sk_agents.persistence.listing import (
    carries,
    cursor,
    longest_untouched,
    read_cursor,
)
from sk_agents.persistence.liveness import MARK_SECONDS, check_deletable, local_process_is_gone
from sk_agents.persistence.redis import index, scripts
from sk_agents.persistence.redis.commit_writer import RedisCommitWriter
from sk_agents.persistence.redis.server import RedisServer, liveness
from sk_agents.persistence.redis.tidying import Tidying
from sk_agents.persistence.stored_log import (
    RecordRow,
    StoredHead,
    read_events_after,
    readable_heads,
    saying,
    whole_log,
)
from sk_agents.redis_access import Command, RedisAccess

logger = logging.getLogger(__name__)

# How many of a user's threads are looked at together, for a filter or a text.
SEARCHED = 20
# How much of a log is read in one step of the server.
PAGE_RECORDS = 512
PAGE_BYTES = 1024 * 1024
# An owner that has not renewed for a day is not remembered.
OWNER_SECONDS = 86_400.0
# How often counters are looked through for forgotten ones.
FORGET_SECONDS = 60.0


class RedisStore:
    """With a `clock` that one counts for leases too, instead of the server's: for tests."""

    durability = Durability.D1
    weaknesses: Sequence[str] = ()

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        codec: RecordCodec = PLAIN,
        password_command: str | None = None,
    ) -> None:
        """`password_command` is for other servers. Raises ConfigurationError: the URL makes no
        sense."""
        self._server = RedisServer(RedisAccess(url))
        self._keys = self._server.keys
        self._codec = codec
        self._given_clock = clock
        self._clock = clock or SystemClock()
        self._writer: RedisCommitWriter | None = None
        self._tidying: Tidying | None = None
        self._counting = asyncio.Lock()
        self._forget_counters_at = 0.0

    def __str__(self) -> str:
        return str(self._server)

    async def __aenter__(self) -> Self:
        await self._server.open(self._codec)
        try:
            await self._grade()
        except BaseException:
            await self._server.close()
            raise
        self._writer = RedisCommitWriter(self._server, self._codec, self._lease_clock)
        self._writer.start()
        await self._forget_owners()
        options = self._server.access.options
        if options.is_cluster or options.ttl is not None:
            self._tidying = Tidying(self._server, self._codec)
            self._tidying.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._tidying is not None:
            await self._tidying.stop()
            self._tidying = None
        if self._writer is not None:
            await self._writer.stop()
            self._writer = None
            await self._server.close()
            await asyncio.to_thread(self._server.close_lease)

    async def ping(self) -> None:
        await self._server.ask(self._server.touch)
        await self._server.check_generation()
        await self._grade()

    async def _grade(self) -> None:
        self.durability, weaknesses = await self._server.durability()
        for weakness in set(weaknesses).difference(self.weaknesses):
            logger.warning("%s: what is acknowledged may be lost", weakness)
        self.weaknesses = weaknesses

    async def commit(self, commit: Commit) -> Committed:
        now = self._clock.now()
        body = await encoded_events(commit.events, now)
        return await self._live_writer().commit(commit, body, now)

    async def claim(self, thread_id: str, owner: str) -> Thread:
        done = await self._live_writer().claim(thread_id, owner, self._clock.now())
        return done.thread

    def renew(self, owner: str, ttl: float) -> None:
        self._server.lease(scripts.RENEW, [self._keys.owners], owner, ttl, self._lease_clock())

    async def retire(self, owner: str) -> None:
        await self._ask(("HDEL", self._keys.owners, owner))

    async def thread(self, thread_id: str) -> Thread:
        [(body, check)] = await self._ask(self._head(thread_id))
        if body is None:
            raise await self._not_found(thread_id)
        return self._codec.decode_head(thread_id, body, int(check))[0]

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        return [head for head, _ in await self._read_heads([*dict.fromkeys(thread_ids)])]

    async def events_after(
        self,
        thread_id: str,
        seq: int,
        limit: int = 500,
        *,
        incarnation: str | None = None,
        max_bytes: int | None = None,
    ) -> Sequence[Event]:
        seq = max(seq, 0)
        stored, records = await self._page(thread_id, seq + 1, limit, max_bytes)
        same_thread(thread_id, stored[0], incarnation)
        return await read_events_after(stored, records, seq, limit, max_bytes)

    async def all_threads(self, *, after: str = "", limit: int = 500) -> Sequence[str]:
        start = b"(" + _bytes(after) if after else "-"
        [found] = await self._ask(
            ("ZRANGE", self._keys.threads, start, "+", "BYLEX", "LIMIT", 0, limit)
        )
        return [*map(_text, found)]

    async def whole_thread(self, thread_id: str) -> tuple[Thread, Sequence[StoredRecord]]:
        stored, records = await self._whole_log(thread_id)
        return stored[0], await asyncio.to_thread(whole_log, stored, records)

    async def restore(self, thread: Thread, records: Sequence[StoredRecord]) -> None:
        if not await self._live_writer().restore(thread, records):
            raise ThreadExists(thread_id=thread.thread_id)

    async def find(self, kind: EntryKind, key: str) -> Entry | None:
        [place] = await self._ask(("GET", self._keys.place(kind, key)))
        if place is None:
            return None
        [entry] = await self._entries([(kind, key, _text(place))])
        return entry

    async def open_entries(
        self, kind: EntryKind, user_id: str, *, after: str | None = None, limit: int = 100
    ) -> Sequence[Entry]:
        """What another thread has taken over, or is not there any more, is left out."""
        listed = self._keys.open(kind, user_id)
        start = b"(" + _bytes(after) + b"\0\xff" if after is not None else b"-"
        found: list[Entry] = []
        while len(found) < limit:
            [page] = await self._ask(("ZRANGE", listed, start, "+", "BYLEX", "LIMIT", 0, limit))
            rows = await self._listed(kind, page)
            found += [row for row in rows if row.user_id == user_id]
            if len(page) < limit:
                break
            start = b"(" + page[-1]
        return sorted(found, key=lambda entry: entry.key)[:limit]

    async def overdue(self, kind: EntryKind, limit: int = 100) -> Sequence[Entry]:
        if self._given_clock is not None:
            now = index.microseconds(self._given_clock.now())
        else:
            [time] = await self._ask(scripts.TIME([self._keys.due(kind)]))
            now = int(float(time) * 1e6)
        due, skipped = self._keys.due(kind), 0
        found: list[Entry] = []
        while len(found) < limit:
            [page] = await self._ask(
                ("ZRANGE", due, "-inf", now, "BYSCORE", "LIMIT", skipped, limit)
            )
            found += [
                row
                for row in await self._listed(kind, page)
                if row.due_at is not None and index.microseconds(row.due_at) <= now
            ]
            if len(page) < limit:
                break
            skipped += limit
        return sorted(found, key=lambda entry: (entry.due_at, entry.key))[:limit]

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        """One more than fits is looked for, to know whether there is one."""
        found: list[Thread] = []
        at_once = query.limit + 1 if query.text is None else SEARCHED
        async for stored in self._of_user(query, at_once):
            heads = [one for one in stored if carries(one[0], query.labels)]
            if query.text is None:
                found += [head for head, _ in heads]
            else:
                found += await self._saying(query.text, heads)
            if len(found) > query.limit:
                page = tuple(found[: query.limit])
                return ThreadPage(page, cursor(page[-1]) if page else None)
        return ThreadPage(tuple(found))

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        runnable, owners = await self._ask(("HGETALL", self._keys.runnable), self._owners())
        alive_until, now = liveness(owners)
        live = {
            owner
            for owner, until in alive_until.items()
            if until > now and not local_process_is_gone(owner)
        }
        lost = [_text(name) for name, owner in runnable.items() if owner.decode() not in live]
        heads = await self._read_heads(lost)
        return longest_untouched(
            (head for head, _ in heads if head.runnable and head.owner not in live), limit
        )

    async def mark_watched(self, run_ids: Collection[str], *, ago: float = 0.0) -> None:
        values = (ago, self._lease_clock(), MARK_SECONDS, *dict.fromkeys(run_ids))
        await self._ask(scripts.MARK([self._keys.watched], *values))

    async def unwatched_for(self, run_id: str) -> float | None:
        [found] = await self._ask(
            scripts.WATCHED([self._keys.watched], run_id, self._lease_clock())
        )
        if not found:
            return None
        age = float(found[1]) - float(found[0])
        return max(0.0, age) if age <= MARK_SECONDS else None

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        """Of two instances that count the same at once, one reads again."""
        now = self._clock.now().timestamp()
        keys = self._keys
        places = [keys.counters, keys.counter_names, keys.counter_ends]
        if now >= self._forget_counters_at:
            self._forget_counters_at = now + FORGET_SECONDS
            await self._ask(scripts.FORGET_COUNTERS(places, repr(now)))
        names = [*dict.fromkeys(addition.key for addition in additions)]
        if not names:
            return []
        async with self._counting:
            sums: list[int] = []
            sent: dict[str, bytes] = {}
            while True:
                [values] = await self._ask(("HMGET", keys.counters, *names))
                read = dict(zip(names, values, strict=True))
                if sent and all(read[key] == value for key, value in sent.items()):
                    return sums  # it had been taken before its answer was lost
                known = {key: _counter(value) for key, value in read.items()}
                sums, changed = counted(additions, known.get, now)
                if not changed:
                    return sums
                token = secrets.token_hex(4)
                sent = {
                    key: f"{counter.sum} {counter.forget_at!r} {token}".encode()
                    for key, counter in changed.items()
                }
                written = [
                    (key, read[key] or b"", sent[key], repr(counter.forget_at))
                    for key, counter in changed.items()
                ]
                [done] = await self._ask(scripts.COUNT(places, *chain.from_iterable(written)))
                if done:
                    return sums

    async def sums(self, prefix: str) -> Mapping[str, int]:
        now = self._clock.now().timestamp()
        start = b"[" + _bytes(prefix)
        [names] = await self._ask(
            ("ZRANGE", self._keys.counter_names, start, start + b"\xff", "BYLEX")
        )
        if not names:
            return {}
        [values] = await self._ask(("HMGET", self._keys.counters, *names))
        counters = {_text(name): _counter(value) for name, value in zip(names, values, strict=True)}
        return {
            name: counter.sum
            for name, counter in counters.items()
            if counter is not None and now < counter.forget_at
        }

    async def delete(
        self, thread_id: str, *, next_seq: int, incarnation: str | None = None
    ) -> None:
        keys = self._keys
        while True:
            (mark, body, check), rows, owners = await self._ask(
                ("HMGET", keys.head(thread_id), "mark", "body", "check"),
                ("HGETALL", keys.entries(thread_id)),
                self._owners(),
            )
            if mark is None:
                raise await self._not_found(thread_id)
            head, _ = self._codec.decode_head(thread_id, body, int(check))
            alive_until, now = liveness(owners)
            owner = head.owner or ""
            alive = alive_until.get(owner, 0.0) > now
            leased = alive and not local_process_is_gone(owner)
            check_deletable(thread_id, head, next_seq, incarnation, leased=leased)
            self._live_writer().forget(thread_id)
            entries = [index.decode_entry(thread_id, *row) for row in rows.items()]
            changes = [*index.of_deletion(keys, head, entries)]
            if await self._delete(thread_id, mark, "" if alive else owner, changes):
                return

    def metrics(self) -> Mapping[str, float]:
        writer = self._live_writer()
        return {
            "commits": writer.jobs,
            "commit_groups": writer.groups,
            "commit_reads": writer.reads,
            "commits_decided_again": writer.decided_again,
        }

    async def _delete(
        self, thread_id: str, mark: bytes, owner: str, changes: Sequence[index.Change]
    ) -> bool:
        """Whether it was still what was read."""
        keys = self._keys
        places = [keys.head(thread_id), keys.log(thread_id), keys.entries(thread_id)]
        values: list[Any] = [mark, owner, self._lease_clock()]
        if self._server.is_cluster:
            [done] = await self._ask(scripts.DELETE(places, *values))
            if done:
                await self._ask(*(change.command for change in changes))
            return bool(done)
        places.append(keys.owners)
        more_keys, more_values = index.arguments(changes, len(places))
        [done] = await self._ask(scripts.DELETE(places + more_keys, *values, *more_values))
        return bool(done)

    def _head(self, thread_id: str) -> Command:
        return ("HMGET", self._keys.head(thread_id), "body", "check")

    async def _read_heads(self, thread_ids: Sequence[str]) -> list[StoredHead]:
        """Those that exist and can be read, in this order."""
        rows = await self._ask(*map(self._head, thread_ids))
        found = [
            (thread_id, body, int(check))
            for thread_id, (body, check) in zip(thread_ids, rows, strict=True)
            if body is not None
        ]
        return [*readable_heads(self._codec, found)]

    async def _page(
        self, thread_id: str, due: int, records: int, max_bytes: int | None
    ) -> tuple[StoredHead, list[RecordRow]]:
        """Raises ThreadNotFound."""
        size = max_bytes if max_bytes is not None else maxsize
        [page] = await self._ask(
            scripts.LOG(
                [self._keys.head(thread_id), self._keys.log(thread_id)],
                min(due, maxsize),
                records,
                size,
            )
        )
        if not page:
            raise await self._not_found(thread_id)
        stored = self._codec.decode_head(thread_id, page[0], int(page[1]))
        rows = zip(page[2::4], page[3::4], page[4::4], page[5::4], strict=True)
        return stored, [_record(*row) for row in rows]

    async def _whole_log(self, thread_id: str) -> tuple[StoredHead, list[RecordRow]]:
        """Page by page: a log only grows, and what is behind the head that was read is left out."""
        stored, records = await self._page(thread_id, 1, PAGE_RECORDS, PAGE_BYTES)
        page = records
        while page:
            last = page[-1].first_seq
            (thread, _), page = await self._page(thread_id, last, PAGE_RECORDS, PAGE_BYTES)
            same_thread(thread_id, thread, stored[0].incarnation)
            page = [row for row in page if row.first_seq > last]
            if not page:  # the first of them alone may have been as large as a page
                more = await self._page(thread_id, last, 2, None)
                page = [row for row in more[1] if row.first_seq > last]
            records += page
        return stored, [row for row in records if row.first_seq < stored[0].next_seq]

    async def _entries(self, wanted: Sequence[tuple[EntryKind, str, str]]) -> list[Entry | None]:
        """The entries of these kinds and keys in these threads."""
        names = [index.field_of(kind, key) for kind, key, _ in wanted]
        rows = await self._ask(
            *(
                ("HGET", self._keys.entries(thread_id), name)
                for name, (_, _, thread_id) in zip(names, wanted, strict=True)
            )
        )
        return [
            index.decode_entry(thread_id, _bytes(name), row) if row is not None else None
            for name, row, (_, _, thread_id) in zip(names, rows, wanted, strict=True)
        ]

    async def _listed(self, kind: EntryKind, members: Iterable[bytes]) -> list[Entry]:
        """The open entries among those that a sorted set lists."""
        named = [index.read_member(each) for each in members]
        places = await self._ask(*(("GET", self._keys.place(kind, key)) for key, _ in named))
        entries = await self._entries([(kind, key, thread_id) for key, thread_id in named])
        return [
            entry
            for entry, place in zip(entries, places, strict=True)
            if entry is not None and entry.open and place == _bytes(entry.thread_id)
        ]

    async def _of_user(self, query: ThreadQuery, at_once: int) -> AsyncIterator[list[StoredHead]]:
        """The heads that a query is about, but for its text; so many are looked at together."""
        start = read_cursor(query.after)
        listed = self._keys.user_threads(query.user_id)
        highest = index.microseconds(start[0]) if start is not None else "+inf"
        skipped = 0
        while True:
            [page] = await self._ask(
                ("ZRANGE", listed, highest, "-inf", "BYSCORE", "REV", "LIMIT", skipped, at_once)
            )
            heads = await self._read_heads([*map(_text, page)])
            yield [
                (head, written)
                for head, written in heads
                if head.user_id == query.user_id
                and query.surface in (None, head.surface)
                and query.session_id in (None, head.session_id)
                and (start is None or (head.updated_at, head.thread_id) < start)
            ]
            if len(page) < at_once:
                return
            skipped += at_once

    async def _saying(self, text: str, heads: Sequence[StoredHead]) -> list[Thread]:
        """Those in which `text` was said."""
        logs: dict[str, list[RecordRow]] = {}
        for head, _ in heads:
            try:
                logs[head.thread_id] = (await self._whole_log(head.thread_id))[1]
            except ThreadNotFound:
                continue
        return await asyncio.to_thread(saying, text, heads, logs)

    async def _forget_owners(self) -> None:
        [owners] = await self._ask(self._owners())
        alive_until, now = liveness(owners)
        old = [owner for owner, until in alive_until.items() if until < now - OWNER_SECONDS]
        if old:
            await self._ask(("HDEL", self._keys.owners, *old))

    async def _not_found(self, thread_id: str) -> ThreadNotFound:
        """Raises StoreUnavailable if nothing at all is there any more."""
        await self._server.check_generation()
        return ThreadNotFound(thread_id=thread_id)

    async def _ask(self, *commands: Command) -> list[Any]:
        return await self._server.ask(*commands)

    def _owners(self) -> Command:
        return scripts.OWNERS([self._keys.owners], self._lease_clock())

    def _lease_clock(self) -> float | str:
        """The time of leases and marks for a script; nothing for the server's own."""
        return self._given_clock.monotonic() if self._given_clock is not None else ""

    def _live_writer(self) -> RedisCommitWriter:
        if self._writer is None:
            raise StoreUnavailable(f"{self._server}: the store is not open")
        return self._writer


def _record(place: bytes, commit_id: bytes, check: bytes, body: bytes) -> RecordRow:
    return RecordRow(int(place.partition(b"-")[0]), _text(commit_id), body, int(check))


def _counter(value: bytes | None) -> Counter | None:
    if value is None:
        return None
    total, forget_at, _ = value.split()
    return Counter(int(total), float(forget_at))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")
