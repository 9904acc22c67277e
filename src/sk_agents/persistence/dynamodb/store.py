"""The store of a fleet without a server of its own: one DynamoDB table, any number of instances.

Heads, logs, entries by key and a user's threads are read consistently. Lists over all users, and a
user's open entries, are found by an index, which may lack what was written in the last moment; what
it names is read from the table itself, so that nothing is shown that is not so any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from sys import maxsize
from typing import Any, Self

from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Commit, Committed, same_thread
from sk_agents.engine.models import Durability, Entry, EntryKind, Thread
from sk_agents.engine.ports import Clock, Count, StoredRecord, ThreadPage, ThreadQuery
from sk_agents.exceptions import (
    StateCorrupt,
    StoreUnavailable,
    ThreadExists,
    ThreadNotFound,
)
from sk_agents.persistence.codec import PLAIN, RecordCodec
from sk_agents.persistence.dynamodb import schema
from sk_agents.persistence.dynamodb.address import read_address
from sk_agents.persistence.dynamodb.items import (
    ALL_THREADS,
    BY_DUE,
    BY_LIST,
    ONLY,
    RUNNABLE_SHARDS,
    HeadItem,
    due_text,
    fits,
    head_key,
    key,
    open_list,
    owner_of,
    read_entry,
    runnable_list,
    values,
)
from sk_agents.persistence.dynamodb.leases import Leases
from sk_agents.persistence.dynamodb.reading import Reader
from sk_agents.persistence.dynamodb.table import (
    ConditionFailed,
    Item,
    Refused,
    Table,
    Unanswered,
)
from sk_agents.persistence.dynamodb.table_counters import TableCounters
from sk_agents.persistence.dynamodb.table_writer import IS_KNOWN, TableWriter, restore
from sk_agents.persistence.dynamodb.unfinished import Unfinished, note
from sk_agents.persistence.encoding import encoded_events
from sk_agents.persistence.listing import cursor, longest_untouched, page_of
from sk_agents.persistence.liveness import MARK_SECONDS, check_deletable, mark_age
from sk_agents.persistence.stored_log import (
    RecordRow,
    StoredHead,
    read_events_after,
    readable_heads,
    saying,
    whole_log,
)

# So many heads are decoded on the event loop.
FEW_HEADS = 50
# How many threads' logs are searched for a text at a time.
SEARCHED = 20
# After the loss of many instances, recovery is shown so many threads to choose from.
MOST_ORPHANS = 1_000
# How often what lost instances left half done is looked for.
UNFINISHED_SECONDS = 60.0
# How often a thread is read again that is removed and made again all the time.
TRIES = 20


class DynamoStore:
    """With a `clock` that one counts for leases and marks, too: for tests."""

    durability = Durability.D3

    def __init__(self, url: str, *, clock: Clock | None = None, codec: RecordCodec = PLAIN) -> None:
        """Raises ConfigurationError: the URL makes no sense."""
        self._address = read_address(url)
        self._table = Table(self._address)
        self._codec = codec
        self._given_clock = clock
        self._clock = clock or SystemClock()
        self._reader = Reader(self._table)
        self._leases = Leases(self._table, self._clock)
        self._unfinished = Unfinished(self._table, self._reader, codec)
        self._counters = TableCounters(self._table, self._clock)
        self._writer: TableWriter | None = None
        self._finish_at = 0.0

    def __str__(self) -> str:
        return str(self._address)

    async def __aenter__(self) -> Self:
        await self._table.open()
        try:
            await schema.prepare(self._table, self._address, self._codec)
        except BaseException:
            await self._table.close()
            raise
        self.durability = Durability.D3 if self._table.is_aws else Durability.D1
        self._writer = TableWriter(
            self._table, self._codec, self._reader, self._leases, self._unfinished
        )
        self._writer.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._writer is not None:
            await self._writer.stop()
            self._writer = None
            await self._table.close()

    async def ping(self) -> None:
        await self._change(self._table.put(key("ping")))

    async def commit(self, commit: Commit) -> Committed:
        now = self._clock.now()
        body = await encoded_events(commit.events, now)
        return await self._live_writer().commit(commit, body, now)

    async def claim(self, thread_id: str, owner: str) -> Thread:
        done = await self._live_writer().claim(thread_id, owner, self._clock.now())
        return done.thread

    def renew(self, owner: str, ttl: float) -> None:
        self._leases.renew(owner, ttl)

    async def retire(self, owner: str) -> None:
        await self._leases.retire(owner)

    async def thread(self, thread_id: str) -> Thread:
        return self._decoded(await self._head(thread_id))[0]

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        found = await self._reader.heads(thread_ids)
        return [thread for thread, _ in self._readable(found)]

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
        for left in reversed(range(TRIES)):
            head = await self._head(thread_id)
            stored = self._decoded(head)
            same_thread(thread_id, stored[0], incarnation)
            if seq + 1 >= stored[0].next_seq:
                return []
            rows = await self._rows(head, seq + 1, limit, max_bytes)
            try:
                return await read_events_after(stored, rows, seq, limit, max_bytes)
            except StateCorrupt:
                # Its records are gone for good reason if the thread is.
                again = await self._reader.head(thread_id)
                if not left or (again is not None and again.life == head.life):
                    raise
        raise AssertionError("the last try returns or raises")

    async def all_threads(self, *, after: str = "", limit: int = 500) -> Sequence[str]:
        names = values(pk=ALL_THREADS, after=after) if after else values(pk=ALL_THREADS)
        condition = "list_pk = :pk AND list_sk > :after" if after else "list_pk = :pk"
        items = await self._listed(condition, names, BY_LIST, limit)
        return [item["list_sk"]["S"] for item in items]

    async def whole_thread(self, thread_id: str) -> tuple[Thread, Sequence[StoredRecord]]:
        for left in reversed(range(TRIES)):
            head = await self._head(thread_id)
            stored = self._decoded(head)
            rows = await self._rows(head, 1, maxsize, None)
            rows = [row for row in rows if row.first_seq < stored[0].next_seq]
            try:
                return stored[0], await asyncio.to_thread(whole_log, stored, rows)
            except StateCorrupt:
                again = await self._reader.head(thread_id)
                if not left or (again is not None and again.life == head.life):
                    raise
        raise AssertionError("the last try returns or raises")

    async def restore(self, thread: Thread, records: Sequence[StoredRecord]) -> None:
        self._live_writer()
        try:
            await restore(self._table, self._codec, self._unfinished, thread, records)
        except ConditionFailed:
            raise ThreadExists(thread_id=thread.thread_id) from None
        except (Unanswered, Refused) as error:
            raise StoreUnavailable(f"{self}: {error}") from error

    async def find(self, kind: EntryKind, key: str) -> Entry | None:
        if not fits(key):
            return None
        items = await self._table.get_all([(f"e#{kind}#{key}", ONLY)])
        return next(map(read_entry, items.values()), None)

    async def open_entries(
        self, kind: EntryKind, user_id: str, *, after: str | None = None, limit: int = 100
    ) -> Sequence[Entry]:
        if not fits(user_id) or not fits(after or ""):
            return []
        names = {"pk": open_list(kind, user_id), **({"after": after} if after else {})}
        condition = f"list_pk = :pk{' AND list_sk > :after' if after else ''}"
        query = self._table.query(condition, values(**names), IndexName=BY_LIST, Limit=limit)
        found: list[Entry] = []
        async with aclosing(query) as pages:
            async for page in pages:
                entries = await self._entries(page)
                found += [entry for entry in entries if entry.open and entry.user_id == user_id]
                if len(found) >= limit:
                    break
        return sorted(found, key=lambda entry: entry.key)[:limit]

    async def overdue(self, kind: EntryKind, limit: int = 100) -> Sequence[Entry]:
        now = self._clock.now()
        end = due_text(now + timedelta(microseconds=1))
        query = self._table.query(
            "due_pk = :pk AND due_sk < :end",
            values(pk=f"due#{kind}", end=end),
            IndexName=BY_DUE,
            Limit=limit,
        )
        found: list[Entry] = []
        async with aclosing(query) as pages:
            async for page in pages:
                entries = await self._entries(page)
                found += [
                    entry
                    for entry in entries
                    if entry.open and entry.due_at is not None and entry.due_at <= now
                ]
                if len(found) >= limit:
                    break
        return sorted(found, key=lambda entry: (entry.due_at, entry.key))[:limit]

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        heads = await self._reader.heads_of(query.user_id)
        if len(heads) > FEW_HEADS:
            stored = await asyncio.to_thread(self._readable, heads)
        else:
            stored = self._readable(heads)
        threads = [thread for thread, _ in stored]
        if query.text is None:
            return page_of(threads, query)
        fitting = page_of(threads, replace(query, text=None, limit=len(threads) + 1)).threads
        return await self._saying(query, fitting, heads, stored)

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        await self._finish_what_was_left()
        lists = await asyncio.gather(*(self._runnable(shard) for shard in range(RUNNABLE_SHARDS)))
        listed = [item for items in lists for item in items]
        alive = await self._alive({owner for item in listed if (owner := owner_of(item))})
        lost = [item for item in listed if owner_of(item) not in alive][:MOST_ORPHANS]
        for item in lost:
            self._reader.remember(item["sk"]["S"], item["pk"]["S"].removeprefix("u#"))
        heads = await self._reader.heads([item["sk"]["S"] for item in lost])
        threads = [thread for thread, _ in self._readable(heads) if thread.runnable]
        # Claimed since the index was read.
        others = {thread.owner for thread in threads if thread.owner is not None}
        alive = await self._alive(others)
        return longest_untouched((thread for thread in threads if thread.owner not in alive), limit)

    async def mark_watched(self, run_ids: Collection[str], *, ago: float = 0.0) -> None:
        at = self._mark_time() - ago
        expires_at = int(self._clock.now().timestamp() + 2 * MARK_SECONDS)
        runs = [run_id for run_id in dict.fromkeys(run_ids) if fits(run_id)]
        await asyncio.gather(*(self._mark(run_id, at, expires_at) for run_id in runs))

    async def unwatched_for(self, run_id: str) -> float | None:
        if not fits(run_id):
            return None
        item = await self._table.get(key(f"m#{run_id}"))
        return mark_age(float(item["marked_at"]["N"]) if item else None, self._mark_time())

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        return await self._counters.count(additions)

    async def sums(self, prefix: str) -> Mapping[str, int]:
        return await self._counters.sums(prefix)

    async def delete(
        self, thread_id: str, *, next_seq: int, incarnation: str | None = None
    ) -> None:
        for _ in range(TRIES):
            head = await self._head(thread_id)
            if head.behind is not None:
                await self._unfinished.index(head)
            thread, _written = self._decoded(head)
            signs = await self._leases.look([thread.owner] if thread.owner is not None else [])
            leased = any(self._leases.is_alive(owner, sign) for owner, sign in signs.items())
            check_deletable(thread_id, thread, next_seq, incarnation, leased=leased)
            self._live_writer().forget(thread_id)
            known = {
                "ConditionExpression": IS_KNOWN,
                "ExpressionAttributeValues": values(life=head.life, version=head.version),
            }
            try:
                await self._table.transact(
                    [
                        {"Delete": {"Key": head_key(thread.user_id, thread_id), **known}},
                        {"Delete": {"Key": key(f"t#{thread_id}")}},
                        {"Put": {"Item": note(thread_id, head.life)}},
                        *(self._leases.unchanged(*sign) for sign in signs.items()),
                    ]
                )
            except ConditionFailed:
                continue
            except (Unanswered, Refused) as error:
                raise StoreUnavailable(f"{self}: {error}") from error
            await self._unfinished.remove(thread_id, head.life)
            return
        raise StoreUnavailable(f"{self}: the conversation changes all the time")

    def metrics(self) -> Mapping[str, float]:
        writer, table = self._live_writer(), self._table
        return {
            "commits": writer.jobs,
            "commit_groups": writer.groups,
            "commit_reads": writer.reads,
            "commits_decided_again": writer.decided_again,
            "requests": table.operations.total(),
            "requests_throttled": table.throttled,
            "read_units": table.read_units,
            "write_units": table.write_units,
        }

    def _live_writer(self) -> TableWriter:
        if self._writer is None:
            raise StoreUnavailable(f"{self}: the store is not open")
        return self._writer

    def _mark_time(self) -> float:
        """By the service's clock: marks are made at one instance and read at another."""
        if self._given_clock is not None:
            return self._given_clock.monotonic()
        told = self._table.service_time()
        return told if told is not None else time.time()

    async def _mark(self, run_id: str, at: float, expires_at: int) -> None:
        change = self._table.send(
            "UpdateItem",
            Key=key(f"m#{run_id}"),
            UpdateExpression="SET marked_at = :at, expires_at = :expires_at",
            ConditionExpression="attribute_not_exists(pk) OR marked_at < :at",
            ExpressionAttributeValues=values(at=at, expires_at=expires_at),
        )
        try:
            await self._change(change)
        except ConditionFailed:
            pass  # a later mark stays

    async def _change(self, change: Any) -> None:
        try:
            await change
        except (Unanswered, Refused) as error:
            raise StoreUnavailable(f"{self}: {error}") from error

    async def _head(self, thread_id: str) -> HeadItem:
        head = await self._reader.head(thread_id)
        if head is None:
            raise ThreadNotFound(thread_id=thread_id)
        return head

    def _decoded(self, head: HeadItem) -> StoredHead:
        return self._codec.decode_head(head.thread_id, head.body, head.checksum)

    def _readable(self, heads: Sequence[HeadItem]) -> list[StoredHead]:
        rows = ((head.thread_id, head.body, head.checksum) for head in heads)
        return [*readable_heads(self._codec, rows)]

    async def _rows(
        self, head: HeadItem, due: int, limit: int, max_bytes: int | None
    ) -> list[RecordRow]:
        """Records from the one in which `due` lies; one event at least is in each."""
        rows: list[RecordRow] = []
        room = maxsize if max_bytes is None else max_bytes
        records = self._reader.records(
            head.thread_id, head.life, due, most=limit, max_bytes=max_bytes
        )
        async with aclosing(records) as found:
            async for record in found:
                body = record.body
                rows.append(RecordRow(record.first_seq, record.commit_id, body, record.checksum))
                room -= len(body)
                # The first one may hold only earlier events.
                if len(rows) > limit or (room <= 0 and len(rows) > 1):
                    break
        return rows

    async def _saying(
        self,
        query: ThreadQuery,
        fitting: Sequence[Thread],
        heads: Sequence[HeadItem],
        stored: Sequence[StoredHead],
    ) -> ThreadPage:
        """The page of those in which the text was said."""
        items = {head.thread_id: head for head in heads}
        codecs = {thread.thread_id: one for one in stored for thread in one[:1]}
        found: list[Thread] = []
        for start in range(0, len(fitting), SEARCHED):
            group = fitting[start : start + SEARCHED]
            logs = await asyncio.gather(
                *(self._rows(items[t.thread_id], 1, maxsize, None) for t in group)
            )
            by_id = {t.thread_id: rows for t, rows in zip(group, logs, strict=True)}
            candidates = [codecs[thread.thread_id] for thread in group]
            found += await asyncio.to_thread(saying, query.text or "", candidates, by_id)
            if len(found) > query.limit:
                page = tuple(found[: query.limit])
                return ThreadPage(page, cursor(page[-1]) if page else None)
        return ThreadPage(tuple(found))

    async def _runnable(self, shard: int) -> list[Item]:
        found: list[Item] = []
        names = values(pk=runnable_list(shard))
        async for page in self._table.query("list_pk = :pk", names, IndexName=BY_LIST):
            found += page
        return found

    async def _alive(self, owners: Collection[str]) -> set[str]:
        signs = await self._leases.look(owners)
        return {owner for owner, sign in signs.items() if self._leases.is_alive(owner, sign)}

    async def _entries(self, listed: Sequence[Item]) -> list[Entry]:
        places = [(item["pk"]["S"], item["sk"]["S"]) for item in listed]
        return [*map(read_entry, (await self._table.get_all(places)).values())]

    async def _listed(
        self, condition: str, names: Mapping[str, Any], index: str, limit: int
    ) -> list[Item]:
        found: list[Item] = []
        query = self._table.query(condition, names, IndexName=index, Limit=limit)
        async with aclosing(query) as pages:
            async for page in pages:
                found += page
                if len(found) >= limit:
                    break
        return found[:limit]

    async def _finish_what_was_left(self) -> None:
        now = self._clock.monotonic()
        if now >= self._finish_at:
            self._finish_at = now + UNFINISHED_SECONDS
            await self._unfinished.finish_all()
