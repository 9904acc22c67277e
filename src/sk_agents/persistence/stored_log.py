"""Heads and records as a database keeps them, back to the engine's nouns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import Any

from sk_agents.engine.events import Event
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import StoredRecord
from sk_agents.exceptions import SchemaTooNew, StateCorrupt
from sk_agents.persistence.codec import RecordCodec
from sk_agents.persistence.encoding import (
    ThreadCodec,
    decode_record,
    read_whole_log,
    record_checksum,
)
from sk_agents.persistence.listing import mentions

# More of a log than this is decoded in a thread.
LARGE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class RecordRow:
    first_seq: int
    commit_id: str
    body: bytes
    checksum: int


StoredHead = tuple[Thread, ThreadCodec]


def readable_heads(codec: RecordCodec, rows: Iterable[Sequence[Any]]) -> Iterator[StoredHead]:
    """One thread that is damaged, or that a newer version wrote, must not hide the others."""
    for thread_id, body, check, *_ in rows:
        try:
            yield codec.decode_head(thread_id, body, check)
        except (StateCorrupt, SchemaTooNew):
            continue


def whole_log(stored: StoredHead, rows: Iterable[RecordRow]) -> list[StoredRecord]:
    """Each record as it was before the codec wrote it, and verified. Raises StateCorrupt."""
    thread, written = stored
    records: list[StoredRecord] = []
    for row in rows:
        place = (thread.thread_id, row.first_seq, row.commit_id, row.body)
        if record_checksum(*place, thread.incarnation) != row.checksum:
            raise StateCorrupt(
                "A stored record does not match its checksum.",
                thread_id=thread.thread_id,
                seq=row.first_seq,
            )
        plain = written.open_record(row.first_seq, row.commit_id, row.body)
        records.append(StoredRecord(row.first_seq, row.commit_id, plain))
    read_whole_log(thread, records)
    return records


async def read_events_after(
    stored: StoredHead,
    records: Sequence[RecordRow],
    seq: int,
    limit: int,
    max_bytes: int | None = None,
) -> list[Event]:
    """As `events_after`; what is long is decoded in a thread."""
    if sum(len(record.body) for record in records) > LARGE_BYTES:
        return await asyncio.to_thread(events_after, stored, records, seq, limit, max_bytes)
    return events_after(stored, records, seq, limit, max_bytes)


def events_after(
    stored: StoredHead,
    records: Iterable[RecordRow],
    seq: int,
    limit: int,
    max_bytes: int | None = None,
) -> list[Event]:
    """The events with a larger `seq` out of these records, which begin with the one it lies in.

    Raises:
        StateCorrupt: a record is damaged, or one is missing.
    """
    thread, written = stored
    events: list[Event] = []
    due, room = seq + 1, maxsize if max_bytes is None else max_bytes
    for row in records:
        if len(events) >= limit or room <= 0 or row.first_seq >= thread.next_seq:
            break
        record = decode_record(
            thread.thread_id,
            row.first_seq,
            row.commit_id,
            row.body,
            row.checksum,
            thread.incarnation,
            after=due - 1,
            limit=limit - len(events),
            written=written,
        )
        if record.last_seq < due or record.first_seq > due:
            break
        events.extend(record.events)
        due, room = record.last_seq + 1, room - len(row.body)
    if len(events) < limit and room > 0 and due < thread.next_seq:
        raise StateCorrupt("A stored record is missing.", thread_id=thread.thread_id, seq=due)
    return events


def saying(
    text: str, heads: Iterable[StoredHead], logs: Mapping[str, Sequence[RecordRow]]
) -> list[Thread]:
    """Those in which `text` was said, of threads whose whole logs are given."""
    found: list[Thread] = []
    for stored in heads:
        thread = stored[0]
        try:
            events = events_after(stored, logs.get(thread.thread_id, ()), 0, thread.next_seq)
        except (StateCorrupt, SchemaTooNew):
            continue
        if mentions(thread, events, text):
            found.append(thread)
    return found
