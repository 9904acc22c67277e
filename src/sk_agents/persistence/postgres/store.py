"""The store of a fleet: one PostgreSQL database, any number of instances on any number of hosts.

Leases and marks go by the database's clock. What is acknowledged is as safe as the database's own
settings make it, which are looked at when the store is opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from sys import maxsize
from typing import Any, Self

import psycopg

from sk_agents.engine.defaults import SystemClock
from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Commit, Committed, same_thread
from sk_agents.engine.models import Durability, Entry, EntryKind, Thread
from sk_agents.engine.ports import Clock, Count, StoredRecord, ThreadPage, ThreadQuery
from sk_agents.exceptions import (
    StoreUnavailable,
    ThreadExists,
    ThreadNotFound,
)
from sk_agents.persistence.codec import PLAIN, RecordCodec
from sk_agents.persistence.counters import Counter, counted
from sk_agents.persistence.encoding import encoded_events
from sk_agents.persistence.listing import carries, cursor, read_cursor
from sk_agents.persistence.liveness import MARK_SECONDS, check_deletable, local_process_is_gone
from sk_agents.persistence.postgres import schema, statements
from sk_agents.persistence.postgres.arrays import Int8Array, TextArray
from sk_agents.persistence.postgres.commit_writer import PostgresCommitWriter, restoring
from sk_agents.persistence.postgres.connections import (
    LeaseConnection,
    PostgresReaders,
    Rows,
    fetch,
    open_connection,
)
from sk_agents.persistence.postgres.rows import entry
from sk_agents.persistence.stored_log import (
    RecordRow,
    StoredHead,
    read_events_after,
    readable_heads,
    saying,
    whole_log,
)
from sk_agents.postgres_access import AsyncConnection, PostgresAccess, store_error

logger = logging.getLogger(__name__)

# How many threads' logs are searched for a text at a time.
SEARCHED = 20
# An owner that has not renewed for a day is not remembered.
OWNER_SECONDS = 86_400.0
# How often counters are looked through for forgotten ones.
FORGET_SECONDS = 60.0
LAST_CHARACTER = chr(0x10FFFF)


class PostgresStore:
    """With a `clock` that one counts for leases too, instead of the database's: for tests."""

    durability = Durability.D2
    weaknesses: Sequence[str] = ()

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        codec: RecordCodec = PLAIN,
        password_command: str | None = None,
    ) -> None:
        """Raises ConfigurationError: the URL makes no sense."""
        self._access = PostgresAccess(url, password_command=password_command)
        self._codec = codec
        self._given_clock = clock
        self._clock = clock or SystemClock()
        self._writer: PostgresCommitWriter | None = None
        self._readers: PostgresReaders | None = None
        self._leases = LeaseConnection(self._access)
        self._forget_counters_at = 0.0

    def __str__(self) -> str:
        return str(self._access)

    async def __aenter__(self) -> Self:
        connection = await open_connection(self._access)
        try:
            await schema.prepare(connection, self._codec)
            self._grade(await fetch(connection, schema.NEEDED, {}))
        except psycopg.Error as error:
            await connection.close()
            raise store_error(error, self._access) from error
        except BaseException:
            await connection.close()
            raise
        self._readers = PostgresReaders(self._access)
        self._writer = PostgresCommitWriter(self._access, self._codec, self._lease_time, connection)
        self._writer.start()
        await self._read(statements.FORGET_OWNERS, seconds=OWNER_SECONDS)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._writer is not None and self._readers is not None:
            await self._writer.stop()
            await self._readers.close()
            await asyncio.to_thread(self._leases.close)
            self._writer = self._readers = None

    async def ping(self) -> None:
        await self._read(statements.TOUCH)
        self._grade(await self._read(schema.NEEDED))

    def _grade(self, off: Rows) -> None:
        """By the settings that are off in our sessions."""
        weaknesses = [f"PostgreSQL's setting {name} is off" for (name,) in off]
        for weakness in set(weaknesses).difference(self.weaknesses):
            logger.warning("%s: what is acknowledged may be lost with the server", weakness)
        self.weaknesses = weaknesses
        self.durability = Durability.D1 if weaknesses else Durability.D2

    async def commit(self, commit: Commit) -> Committed:
        now = self._clock.now()
        body = await encoded_events(commit.events, now)
        return await self._live_writer().commit(commit, body, now)

    async def claim(self, thread_id: str, owner: str) -> Thread:
        done = await self._live_writer().claim(thread_id, owner, self._clock.now())
        return done.thread

    def renew(self, owner: str, ttl: float) -> None:
        self._leases.execute(statements.RENEW, owner=owner, ttl=ttl, clock=self._lease_time())

    async def retire(self, owner: str) -> None:
        await self._read(statements.RETIRE, owner=owner)

    async def thread(self, thread_id: str) -> Thread:
        rows = await self._read(statements.HEAD, thread_id=thread_id)
        if not rows:
            raise ThreadNotFound(thread_id=thread_id)
        return self._codec.decode_head(thread_id, *rows[0])[0]

    async def heads(self, thread_ids: Collection[str]) -> Sequence[Thread]:
        rows = await self._read(statements.HEADS, thread_ids=TextArray([*thread_ids]))
        return [head for head, _ in readable_heads(self._codec, rows)]

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
        rows = await self._read(
            statements.LOG,
            thread_id=thread_id,
            due=min(seq + 1, maxsize),
            records=limit,
            max_bytes=maxsize if max_bytes is None else max_bytes,
        )
        if not rows:
            raise ThreadNotFound(thread_id=thread_id)
        stored = self._codec.decode_head(thread_id, *rows[0][:2])
        same_thread(thread_id, stored[0], incarnation)
        records = [RecordRow(*row[2:]) for row in rows if row[2] is not None]
        return await read_events_after(stored, records, seq, limit, max_bytes)

    async def all_threads(self, *, after: str = "", limit: int = 500) -> Sequence[str]:
        rows = await self._read(statements.ALL_THREADS, after=after, limit=limit)
        return [thread_id for (thread_id,) in rows]

    async def whole_thread(self, thread_id: str) -> tuple[Thread, Sequence[StoredRecord]]:
        rows = await self._read(
            statements.LOG, thread_id=thread_id, due=1, records=None, max_bytes=maxsize
        )
        if not rows:
            raise ThreadNotFound(thread_id=thread_id)
        stored = self._codec.decode_head(thread_id, *rows[0][:2])
        records = [RecordRow(*row[2:]) for row in rows if row[2] is not None]
        return stored[0], await asyncio.to_thread(whole_log, stored, records)

    async def restore(self, thread: Thread, records: Sequence[StoredRecord]) -> None:
        if self._readers is None:
            raise StoreUnavailable(f"{self._access}: the store is not open")
        values = await asyncio.to_thread(restoring, self._codec, thread, records)
        if not await self._readers.fetch(statements.COMMIT, **values, clock=None):
            raise ThreadExists(thread_id=thread.thread_id)

    async def find(self, kind: EntryKind, key: str) -> Entry | None:
        rows = await self._read(statements.ENTRIES, kind=kind, keys=TextArray([key]))
        return entry(rows[0]) if rows else None

    async def open_entries(
        self, kind: EntryKind, user_id: str, *, after: str | None = None, limit: int = 100
    ) -> Sequence[Entry]:
        rows = await self._read(
            statements.OPEN_ENTRIES, kind=kind, user_id=user_id, after=after or "", limit=limit
        )
        return [*map(entry, rows)]

    async def overdue(self, kind: EntryKind, limit: int = 100) -> Sequence[Entry]:
        now = self._given_clock.now() if self._given_clock is not None else None
        rows = await self._read(statements.OVERDUE, kind=kind, now=now, limit=limit)
        return [*map(entry, rows)]

    async def threads(self, query: ThreadQuery) -> ThreadPage:
        """One more than fits is looked for, to know whether there is one."""
        start = read_cursor(query.after)
        at_once = query.limit + 1 if query.text is None else SEARCHED
        found: list[Thread] = []
        while True:
            at, last_id = start or (None, None)
            rows = await self._read(
                statements.PAGE,
                user_id=query.user_id,
                surface=query.surface,
                session_id=query.session_id,
                at=at,
                thread_id=last_id,
                limit=at_once,
            )
            readable = readable_heads(self._codec, rows)
            heads = [stored for stored in readable if carries(stored[0], query.labels)]
            if query.text is None:
                found += [head for head, _ in heads]
            else:
                found += await self._saying(query.text, heads)
            if len(found) > query.limit:
                page = tuple(found[: query.limit])
                return ThreadPage(page, cursor(page[-1]) if page else None)
            if len(rows) < at_once:
                return ThreadPage(tuple(found))
            start = rows[-1][3], rows[-1][0]

    async def _saying(self, text: str, heads: Sequence[StoredHead]) -> list[Thread]:
        """Those in which `text` was said."""
        ids = TextArray([thread.thread_id for thread, _ in heads])
        rows = await self._read(statements.LOGS, thread_ids=ids)
        logs: dict[str, list[RecordRow]] = defaultdict(list)
        for thread_id, *row in rows:
            logs[thread_id].append(RecordRow(*row))
        return await asyncio.to_thread(saying, text, heads, logs)

    async def orphans(self, limit: int = 100) -> Sequence[Thread]:
        owners = [owner for (owner,) in await self._read(statements.OWNERS)]
        gone = TextArray([owner for owner in owners if local_process_is_gone(owner)])
        rows = await self._read(statements.ORPHANS, gone=gone, limit=limit)
        return [head for head, _ in readable_heads(self._codec, rows)]

    async def mark_watched(self, run_ids: Collection[str], *, ago: float = 0.0) -> None:
        await self._read(statements.FORGET_MARKS, seconds=MARK_SECONDS)
        await self._read(statements.MARK, run_ids=TextArray([*run_ids]), ago=ago)

    async def unwatched_for(self, run_id: str) -> float | None:
        for at, now in await self._read(statements.WATCHED, run_id=run_id):
            return max(0.0, now - at) if now - at <= MARK_SECONDS else None
        return None

    async def count(self, additions: Sequence[Count]) -> Sequence[int]:
        if self._readers is None:
            raise StoreUnavailable(f"{self._access}: the store is not open")
        now = self._clock.now().timestamp()
        if now >= self._forget_counters_at:
            self._forget_counters_at = now + FORGET_SECONDS
            await self._read(statements.FORGET_COUNTERS, now=now)
        return await self._readers.run(lambda connection: _count(connection, additions, now))

    async def sums(self, prefix: str) -> Mapping[str, int]:
        now = self._clock.now().timestamp()
        end = prefix + LAST_CHARACTER
        return dict(await self._read(statements.SUMS, prefix=prefix, end=end, now=now))

    async def delete(
        self, thread_id: str, *, next_seq: int, incarnation: str | None = None
    ) -> None:
        while True:
            rows = await self._read(statements.HEADS_TO_CHANGE, thread_ids=TextArray([thread_id]))
            if not rows:
                raise ThreadNotFound(thread_id=thread_id)
            _, no, version, body, check, alive = rows[0]
            head, _ = self._codec.decode_head(thread_id, body, check)
            leased = alive and not local_process_is_gone(head.owner or "")
            check_deletable(thread_id, head, next_seq, incarnation, leased=leased)
            self._live_writer().forget(thread_id)
            values = {"no": no, "version": version, "takes_over": not alive}
            if await self._read(statements.DELETE, **values):
                return

    def metrics(self) -> Mapping[str, float]:
        writer = self._live_writer()
        return {
            "commits": writer.jobs,
            "commit_groups": writer.groups,
            "commit_reads": writer.reads,
            "commits_decided_again": writer.decided_again,
        }

    def _lease_time(self) -> float | None:
        return self._given_clock.monotonic() if self._given_clock is not None else None

    async def _read(self, statement: Any, **values: Any) -> Rows:
        """All rows of a statement that may be sent again if its connection was lost."""
        if self._readers is None:
            raise StoreUnavailable(f"{self._access}: the store is not open")
        for name, value in values.items():
            if isinstance(value, TextArray):
                values[name] = TextArray([text for text in value.values if _can_be_stored(text)])
            elif isinstance(value, str) and not _can_be_stored(value):
                return []
        return await self._readers.fetch(statement, **values, clock=self._lease_time())

    def _live_writer(self) -> PostgresCommitWriter:
        if self._writer is None:
            raise StoreUnavailable(f"{self._access}: the store is not open")
        return self._writer


def _can_be_stored(text: str | None) -> bool:
    """Whether a row may hold it; PostgreSQL's texts hold neither a zero nor half a character."""
    try:
        return text is None or b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


async def _count(connection: AsyncConnection, additions: Sequence[Count], now: float) -> list[int]:
    """In one transaction, which has the counters to itself. Raises CounterFull."""
    async with connection.transaction():
        keys = TextArray([addition.key for addition in additions])
        rows = await fetch(connection, statements.COUNTERS, {"keys": keys})
        found = {key: Counter(total, forget_at) for key, total, forget_at, _ in rows}
        sums, changed = counted(additions, found.get, now)
        values = {
            "keys": TextArray([*changed]),
            "sums": Int8Array([counter.sum for counter in changed.values()]),
            "forget_at": [counter.forget_at for counter in changed.values()],
        }
        await connection.execute(statements.COUNT, values)
    return sums
