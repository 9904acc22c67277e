"""Every statement of the SQLite store, each as a function from rows to the engine's nouns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from sys import maxsize
from typing import NamedTuple

import apsw
import orjson

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import entries_of, same_thread
from sk_agents.engine.models import Entry, EntryKind, Thread
from sk_agents.engine.ports import Count, StoredRecord, ThreadPage, ThreadQuery
from sk_agents.exceptions import (
    CounterFull,
    SchemaTooNew,
    StateCorrupt,
    ThreadExists,
    ThreadNotFound,
)
from sk_agents.persistence.codec import SEALED, RecordCodec
from sk_agents.persistence.counters import Counter, counted
from sk_agents.persistence.encoding import (
    Record,
    ThreadCodec,
    decode_record,
    head_checksum,
    read_whole_log,
    record_checksum,
)
from sk_agents.persistence.listing import mentions, page_of
from sk_agents.persistence.liveness import MARK_AHEAD_SECONDS, MARK_SECONDS

_PLACE_BITS = 32
_LAST_CHARACTER = "\U0010ffff"

# A connection makes a cursor for each statement; a caller that writes many at once brings one.
Writer = apsw.Connection | apsw.Cursor


class StoredThread(NamedTuple):
    """A thread's number, its head, how it is written, and the head's bytes."""

    no: int
    head: Thread
    written: ThreadCodec
    body: bytes

    def advanced(self, head: Thread) -> StoredThread:
        """Raises InvalidInput: the metadata has no JSON form."""
        return StoredThread(self.no, head, self.written, _body(self.written, head))


def thread(db: apsw.Connection, codec: RecordCodec, thread_id: str) -> StoredThread | None:
    for no, user_id, body, check in db.execute(
        "SELECT no, user_id, head, checksum FROM thread WHERE thread_id = ?", (thread_id,)
    ):
        head, written = codec.decode_head(thread_id, body, check)
        if head.user_id != user_id:
            raise StateCorrupt("A stored thread was given to another user.", thread_id=thread_id)
        return StoredThread(no, head, written, body)
    return None


def known_thread(db: apsw.Connection, codec: RecordCodec, thread_id: str) -> StoredThread:
    found = thread(db, codec, thread_id)
    if found is None:
        raise ThreadNotFound(thread_id=thread_id)
    return found


def heads(db: apsw.Connection, codec: RecordCodec, thread_ids: Collection[str]) -> list[Thread]:
    """Of those that exist and can be read."""
    where = "thread_id IN (SELECT value FROM json_each(?))"
    return list(_heads(db, codec, where, orjson.dumps(list(thread_ids)).decode()))


def runnable(db: apsw.Connection, codec: RecordCodec) -> Iterator[Thread]:
    """Heads that want an owner. A damaged or newer one is not offered: it could not be driven."""
    return _heads(db, codec, "runnable")


def page(db: apsw.Connection, codec: RecordCodec, query: ThreadQuery) -> ThreadPage:
    """A user's threads, newest first. A damaged head is left out: it can be named, not shown."""
    if query.surface is None:
        found = _heads(db, codec, "user_id = ?", query.user_id)
    else:
        found = _heads(db, codec, "user_id = ? AND surface = ?", query.user_id, query.surface)
    return page_of((head for head in found if _matches(db, codec, head, query.text)), query)


def _heads(db: apsw.Connection, codec: RecordCodec, where: str, *values: str) -> Iterator[Thread]:
    """One thread that is damaged, or that a newer version wrote, must not hide the others."""
    statement = f"SELECT thread_id, head, checksum FROM thread WHERE {where}"
    for thread_id, body, check in db.execute(statement, values):
        try:
            yield codec.decode_head(thread_id, body, check)[0]
        except (StateCorrupt, SchemaTooNew):
            continue


def _matches(db: apsw.Connection, codec: RecordCodec, head: Thread, text: str | None) -> bool:
    if text is None:
        return True
    try:
        return mentions(head, events_after(db, codec, head.thread_id, 0, head.next_seq), text)
    except (StateCorrupt, SchemaTooNew):
        return False


def insert_head(db: apsw.Connection, written: ThreadCodec, head: Thread) -> StoredThread:
    body = _body(written, head)
    db.execute(
        "INSERT INTO thread (thread_id, user_id, surface, runnable, head, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            head.thread_id,
            head.user_id,
            head.surface,
            head.runnable,
            body,
            head_checksum(head.thread_id, body),
        ),
    )
    return StoredThread(db.last_insert_rowid(), head, written, body)


def _body(written: ThreadCodec, head: Thread) -> bytes:
    """A copy, to be kept: what orjson returns holds on to 8 KB."""
    return bytes(memoryview(written.encode_head(head)))


def update_head(db: Writer, before: StoredThread, stored: StoredThread) -> None:
    """Write what becomes of the row that holds what was `before`."""
    no, head, _, body = stored
    db.execute(
        f"UPDATE thread SET {_runnable(before, stored)}head = ?, checksum = ? WHERE no = ?",
        (body, head_checksum(head.thread_id, body), no),
    )


def _runnable(before: StoredThread, stored: StoredThread) -> str:
    """Set only if it changes: the row would be taken out of its index and put back, which writes a
    page more."""
    is_runnable = stored.head.runnable
    return "" if is_runnable == before.head.runnable else f"runnable = {is_runnable:d}, "


def replace_head_if_known(db: apsw.Cursor, known: StoredThread, stored: StoredThread) -> bool:
    """Whether the row held what is known; if not, nothing was written."""
    no, head, _, body = stored
    db.execute(
        f"UPDATE thread SET {_runnable(known, stored)}head = ?, checksum = ?"
        " WHERE no = ? AND checksum = ? AND head = ? AND user_id = ?",
        (
            body,
            head_checksum(head.thread_id, body),
            no,
            head_checksum(head.thread_id, known.body),
            known.body,
            head.user_id,
        ),
    )
    return db.connection.changes() == 1


def insert_record(
    db: Writer, stored: StoredThread, first_seq: int, commit_id: str, body: bytes
) -> None:
    no, head, written, _ = stored
    body = written.seal_record(first_seq, commit_id, body)
    check = record_checksum(head.thread_id, first_seq, commit_id, body, head.incarnation)
    db.execute(
        "INSERT INTO record (place, commit_id, body, checksum) VALUES (?, ?, ?, ?)",
        (no << _PLACE_BITS | first_seq, commit_id, body, check),
    )


def record_of(
    db: apsw.Connection, stored: StoredThread, commit_id: str, first_seq: int
) -> Record | None:
    """The record of this commit, if it lies at `first_seq` or after."""
    for place, body, check in db.execute(
        "SELECT place, body, checksum FROM record WHERE place >= ? AND place < ? AND commit_id = ?",
        (stored.no << _PLACE_BITS | first_seq, stored.no + 1 << _PLACE_BITS, commit_id),
    ):
        return _record(stored, place, commit_id, body, check)
    return None


def events_after(
    db: apsw.Connection,
    codec: RecordCodec,
    thread_id: str,
    seq: int,
    limit: int,
    *,
    incarnation: str | None = None,
    max_bytes: int | None = None,
) -> list[Event]:
    stored = known_thread(db, codec, thread_id)
    head = same_thread(thread_id, stored.head, incarnation)
    first = stored.no << _PLACE_BITS
    events: list[Event] = []
    due, room = seq + 1, maxsize if max_bytes is None else max_bytes
    for place, commit_id, body, check in db.execute(
        "SELECT place, commit_id, body, checksum FROM record WHERE place < ? AND place >="
        " (SELECT max(place) FROM record WHERE place > ? AND place <= ?) ORDER BY place",
        (first + head.next_seq, first, first + due),
    ):
        if len(events) >= limit or room <= 0:
            break
        wanted = limit - len(events)
        record = _record(stored, place, commit_id, body, check, after=due - 1, limit=wanted)
        if record.last_seq < due or record.first_seq > due:
            break
        events.extend(record.events)
        due, room = record.last_seq + 1, room - len(body)
    if len(events) < limit and room > 0 and due < head.next_seq:
        raise StateCorrupt("A stored record is missing.", thread_id=thread_id, seq=due)
    return events


def all_threads(db: apsw.Connection, after: str, limit: int) -> list[str]:
    statement = "SELECT thread_id FROM thread WHERE thread_id > ? ORDER BY thread_id LIMIT ?"
    return [thread_id for (thread_id,) in db.execute(statement, (after, limit))]


def whole_thread(
    db: apsw.Connection, codec: RecordCodec, thread_id: str
) -> tuple[Thread, list[StoredRecord]]:
    """Each record as it was before the codec wrote it, and verified. Raises StateCorrupt."""
    stored = known_thread(db, codec, thread_id)
    no, head, written, _ = stored
    first = no << _PLACE_BITS
    records: list[StoredRecord] = []
    for place, commit_id, body, check in db.execute(
        "SELECT place, commit_id, body, checksum FROM record WHERE place > ? AND place < ?"
        " ORDER BY place",
        (first, first + head.next_seq),
    ):
        first_seq = place - first
        if record_checksum(thread_id, first_seq, commit_id, body, head.incarnation) != check:
            raise StateCorrupt(
                "A stored record does not match its checksum.", thread_id=thread_id, seq=first_seq
            )
        plain = written.open_record(first_seq, commit_id, body)
        records.append(StoredRecord(first_seq, commit_id, plain))
    read_whole_log(head, records)
    return head, records


def restore(
    db: apsw.Connection, codec: RecordCodec, head: Thread, records: Sequence[StoredRecord]
) -> None:
    """Raises ThreadExists, StateCorrupt: nothing was written."""
    log = read_whole_log(head, records)
    if db.execute("SELECT 1 FROM thread WHERE thread_id = ?", (head.thread_id,)).fetchone():
        raise ThreadExists(thread_id=head.thread_id)
    stored = insert_head(db, codec.for_new(head), head)
    for record in records:
        insert_record(db, stored, record.first_seq, record.commit_id, record.body)
    for record_read in log:
        for row in entries_of(head, record_read.events):
            upsert_entry(db, stored.no, row)


def entry(db: apsw.Connection, kind: EntryKind, key: str) -> Entry | None:
    return next(_entries(db, "kind = ? AND key = ?", kind, key), None)


def open_entries(
    db: apsw.Connection, kind: EntryKind, user_id: str, after: str | None, limit: int
) -> list[Entry]:
    where = "kind = ? AND entry.user_id = ? AND key > ? AND open ORDER BY key LIMIT ?"
    return list(_entries(db, where, kind, user_id, after or "", limit))


def overdue(db: apsw.Connection, kind: EntryKind, now: datetime, limit: int) -> list[Entry]:
    where = "kind = ? AND due_at <= ? AND open ORDER BY due_at, key LIMIT ?"
    return list(_entries(db, where, kind, now.isoformat(), limit))


def upsert_entry(db: Writer, no: int, row: Entry) -> None:
    db.execute(
        "INSERT OR REPLACE INTO entry (kind, key, thread_no, user_id, run_id, open, due_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            row.kind,
            row.key,
            no,
            row.user_id,
            row.run_id,
            row.open,
            row.due_at.isoformat() if row.due_at else None,
        ),
    )


def alive_until(db: apsw.Connection, owner: str) -> float | None:
    return _moment(db, "SELECT alive_until FROM owner WHERE owner = ?", owner)


def renew(db: apsw.Connection, owner: str, moment: float) -> None:
    db.execute("INSERT OR REPLACE INTO owner (owner, alive_until) VALUES (?, ?)", (owner, moment))


def retire(db: apsw.Connection, owner: str) -> None:
    db.execute("DELETE FROM owner WHERE owner = ?", (owner,))


def mark_watched(db: apsw.Connection, run_ids: Collection[str], now: float, ago: float) -> None:
    """In a transaction of its own; drops the marks that say nothing any more."""
    with db:
        db.execute(
            "DELETE FROM watched WHERE at NOT BETWEEN ? AND ?",
            (now - MARK_SECONDS, now + MARK_AHEAD_SECONDS),
        )
        db.executemany(
            "INSERT INTO watched (run_id, at) VALUES (?, ?)"
            " ON CONFLICT (run_id) DO UPDATE SET at = max(at, excluded.at)",
            [(run_id, now - ago) for run_id in run_ids],
        )


def watched_at(db: apsw.Connection, run_id: str) -> float | None:
    return _moment(db, "SELECT at FROM watched WHERE run_id = ?", run_id)


def count(
    db: apsw.Connection, steps: Sequence[Sequence[Count]], now: float
) -> list[list[int] | CounterFull]:
    """Each step's sums, or why it was refused, in one transaction; drops forgotten counters."""
    results: list[list[int] | CounterFull] = []
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("DELETE FROM counter WHERE forget_at <= ?", (now,))
        for additions in steps:
            try:
                sums, changed = counted(additions, lambda key: _counter(db, key), now)
            except CounterFull as full:
                results.append(full)
                continue
            db.executemany(
                "INSERT INTO counter (key, sum, forget_at) VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO UPDATE SET sum = excluded.sum",
                [(key, *counter) for key, counter in changed.items()],
            )
            results.append(sums)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return results


def _counter(db: apsw.Connection, key: str) -> Counter | None:
    for total, forget_at in db.execute("SELECT sum, forget_at FROM counter WHERE key = ?", (key,)):
        return Counter(total, forget_at)
    return None


def sums(db: apsw.Connection, prefix: str, now: float) -> Mapping[str, int]:
    statement = "SELECT key, sum FROM counter WHERE key >= ? AND key < ? AND forget_at > ?"
    return dict(db.execute(statement, (prefix, prefix + _LAST_CHARACTER, now)))


def _moment(db: apsw.Connection, statement: str, key: str) -> float | None:
    for (moment,) in db.execute(statement, (key,)):
        return float(moment)
    return None


def delete(db: apsw.Connection, no: int) -> None:
    places = (no << _PLACE_BITS, no + 1 << _PLACE_BITS)
    db.execute("DELETE FROM record WHERE place >= ? AND place < ?", places)
    db.execute("DELETE FROM entry WHERE thread_no = ?", (no,))
    db.execute("DELETE FROM thread WHERE no = ?", (no,))


def records(db: apsw.Connection, no: int) -> Iterator[tuple[int, int, str, bytes, int]]:
    """Number, first event, commit, bytes and checksum of each record of a thread, in order."""
    first = no << _PLACE_BITS
    for number, place, commit_id, body, check in db.execute(
        "SELECT no, place, commit_id, body, checksum FROM record"
        " WHERE place >= ? AND place < ? ORDER BY place",
        (first, no + 1 << _PLACE_BITS),
    ):
        yield number, place - first, commit_id, body, check


def replace_head(db: apsw.Connection, no: int, thread_id: str, body: bytes) -> None:
    """Other bytes for the same head."""
    db.execute(
        "UPDATE thread SET head = ?, checksum = ? WHERE no = ?",
        (body, head_checksum(thread_id, body), no),
    )


def wrapped_by_others(db: apsw.Connection, key_id: bytes) -> Iterator[str]:
    """The encrypted threads whose key another key than this one wraps."""
    statement = "SELECT thread_id FROM thread WHERE substr(head, ?, ?) != ?"
    for (thread_id,) in db.execute(statement, (len(SEALED) + 1, len(key_id), key_id)):
        yield thread_id


def marker(db: apsw.Connection) -> bytes | None:
    for (found,) in db.execute("SELECT marker FROM encryption"):
        return bytes(found)
    return None


def is_empty(db: apsw.Connection) -> bool:
    return not list(db.execute("SELECT 1 FROM thread LIMIT 1"))


def mark(db: apsw.Connection, codec: RecordCodec) -> None:
    """In the caller's transaction. Raises what `RecordCodec.marker` does."""
    found = marker(db)
    wanted = codec.marker(found, is_empty=found is None and is_empty(db))
    if wanted != found:
        db.execute("INSERT OR REPLACE INTO encryption (no, marker) VALUES (1, ?)", (wanted,))


def touch(db: apsw.Connection, room: int) -> None:
    """Write a page, and `room` bytes beside: a row that is of no owner."""
    db.execute(
        "INSERT OR REPLACE INTO owner (owner, alive_until) VALUES ('', zeroblob(?))", (room,)
    )


def _entries(db: apsw.Connection, where: str, *values: str | int) -> Iterator[Entry]:
    statement = (
        "SELECT kind, key, thread_id, entry.user_id, run_id, open, due_at"
        f" FROM entry JOIN thread ON thread.no = entry.thread_no WHERE {where}"
    )
    for kind, key, thread_id, user_id, run_id, is_open, due_at in db.execute(statement, values):
        due = datetime.fromisoformat(due_at) if due_at else None
        yield Entry(kind, key, thread_id, user_id, run_id, bool(is_open), due)


def _record(
    stored: StoredThread,
    place: int,
    commit_id: str,
    body: bytes,
    check: int,
    *,
    after: int = 0,
    limit: int | None = None,
) -> Record:
    first_seq = place & (1 << _PLACE_BITS) - 1
    identity = (stored.head.thread_id, first_seq, commit_id, body, check, stored.head.incarnation)
    return decode_record(*identity, after=after, limit=limit, written=stored.written)
