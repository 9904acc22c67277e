"""The trail through all logs of a store: the threads' and the server's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush, nlargest
from typing import Any

from sk_agents.audit.trail import LAST, SERVER, ServerTrail, ThreadTrail
from sk_agents.engine.events import Event
from sk_agents.engine.models import SERVER_LOG, Thread, server_log_part
from sk_agents.engine.ports import PortableStore, Store
from sk_agents.engine.threads.heads import heads_since
from sk_agents.exceptions import SchemaTooNew, StateCorrupt, ThreadNotFound
from sk_agents.wire.views import AuditEntry, AuditReport, Checkpoint

PAGE = 500
# Threads that an answer over HTTP is made of at most, those changed last.
MOST_THREADS = 2_000


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """What of the trail is asked for; `user_id` is whose thread it is, or who did it."""

    since: datetime | None = None
    user_id: str | None = None
    agent: str | None = None

    def wants(self, entry: AuditEntry) -> bool:
        return (
            (self.since is None or datetime.fromisoformat(entry.at) >= self.since)
            and self.user_id in (None, entry.user_id, entry.who)
            and self.agent in (None, entry.agent)
        )


async def trail(store: Store, query: AuditQuery) -> AsyncIterator[AuditEntry]:
    """Everything that is asked for: what the server's log has, then thread by thread, each log in
    its order. A log that is damaged is left out: `verify` names it."""
    async for entry in _entries(store, query, heads_since(store, query.since)):
        yield entry


async def newest(store: Store, query: AuditQuery, limit: int) -> AuditReport:
    """The newest entries, at most `limit` of them."""
    heads: list[Thread] = []
    async for page in heads_since(store, query.since):
        heads = nlargest(MOST_THREADS + 1, (*heads, *page), key=lambda head: head.updated_at)
    is_cut = len(heads) > MOST_THREADS
    kept: list[tuple[str, int, AuditEntry]] = []
    number = 0
    async for entry in _entries(store, query, _in_one_page(heads[:MOST_THREADS])):
        number += 1
        heappush(kept, (entry.at, number, entry))
        if len(kept) > limit:
            heappop(kept)
            is_cut = True
    found = [entry for _, _, entry in sorted(kept, reverse=True, key=lambda item: item[:2])]
    since = query.since.isoformat() if query.since is not None else None
    return AuditReport(since=since, entries=found, is_cut=is_cut)


async def _entries(
    store: Store, query: AuditQuery, threads: AsyncIterator[Sequence[Thread]]
) -> AsyncIterator[AuditEntry]:
    # A deletion that failed, or was tried twice, has kept what the thread's own log has too.
    kept: set[tuple[str, int, str]] = set()
    async for entry in server_trail(store):
        if entry.log != SERVER:
            place = (entry.log, entry.seq, entry.what)
            if place in kept:
                continue
            kept.add(place)
        if query.wants(entry):
            yield entry
    async for heads in threads:
        for head in heads:
            async for entry in thread_trail(store, head):
                if (entry.log, entry.seq, entry.what) not in kept and query.wants(entry):
                    yield entry


async def server_trail(store: Store) -> AsyncIterator[AuditEntry]:
    reader = ServerTrail()
    part = 1
    while True:
        try:
            head = await store.thread(server_log_part(part))
            async for page in pages_of(store, head):
                for entry in reader.entries(page):
                    yield entry
        except (ThreadNotFound, StateCorrupt, SchemaTooNew):
            return
        part += 1


async def last_checkpoint(store: Store) -> Checkpoint | None:
    """The one that the server's log got last."""
    found: Any = None
    part = 1
    try:
        while True:
            found = (await store.thread(server_log_part(part))).metadata.get(LAST)
            part += 1
    except ThreadNotFound:
        return Checkpoint.model_validate(found) if found is not None else None


async def thread_trail(store: Store, head: Thread) -> AsyncIterator[AuditEntry]:
    """Nothing of a store that cannot be read as a whole: the server's log has it."""
    if not isinstance(store, PortableStore):
        return
    try:
        thread, records = await store.whole_thread(head.thread_id)
        if thread.incarnation != head.incarnation:
            return
        reader = ThreadTrail(thread)
        # A conversation with a past is made by one commit; what that says happened elsewhere.
        past = records[1].first_seq if len(records) > 1 else thread.next_seq
        async for page in pages_of(store, thread):
            for event in page:
                for entry in reader.entries([event], is_imported=event.seq < past):
                    yield entry
    except (ThreadNotFound, StateCorrupt, SchemaTooNew):
        return


async def _in_one_page(heads: Sequence[Thread]) -> AsyncIterator[Sequence[Thread]]:
    yield heads


async def thread_ids(store: PortableStore) -> AsyncIterator[str]:
    """Of all threads, damaged ones too, without the server's own."""
    ids: Sequence[str] = [""]
    while ids := await store.all_threads(after=ids[-1], limit=PAGE):
        for thread_id in ids:
            if not thread_id.startswith(SERVER_LOG):
                yield thread_id


async def pages_of(
    store: Store, thread: Thread, *, after: int = 0
) -> AsyncIterator[Sequence[Event]]:
    """The events of a thread up to this head."""
    while after < thread.next_seq - 1:
        limit = min(PAGE, thread.next_seq - 1 - after)
        page = await store.events_after(
            thread.thread_id, after, limit, incarnation=thread.incarnation
        )
        if not page:
            return
        yield page
        after = page[-1].seq
