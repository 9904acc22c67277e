"""How stores write a commit and a thread's head: as JSON, sealed by a checksum.

A commit is one record: the unit every store keeps, as a row, an item or a line. Its checksum
covers the thread, its incarnation and the place in its log too, so a record that was changed, cut,
moved to another thread or left by a deleted one is recognised.
"""

from __future__ import annotations

import asyncio
import re
import threading
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import orjson
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from sk_agents.engine.events import Event, event_from
from sk_agents.engine.log.canonical import canonical_json
from sk_agents.engine.log.chain import last_chain
from sk_agents.engine.models import EPOCH, HEAD_VERSION, Thread, ThreadStatus
from sk_agents.engine.ports import StoredRecord
from sk_agents.exceptions import CommitReused, InvalidInput, SchemaTooNew, StateCorrupt

FORMAT = 1
# A commit of more events, such as an import, takes long to encode.
LARGE_COMMIT = 500
_ASSIGNED = {"seq", "at"}
_PLACE = {"seq"}
# Deeper than a reader goes is only what opens more brackets than this, in all.
_SURELY_SHALLOW = 100
# As numbers: looking for a byte takes a tenth of the time that looking for a word does.
_N, _I = b"NI"
# The serializer silently writes U+FFFD for half a surrogate pair in an object's key.
_REPLACEMENT = "\ufffd".encode()


@dataclass(frozen=True, slots=True)
class Record:
    """`left_out` is how many of its events are not among `events`."""

    commit_id: str
    first_seq: int
    events: tuple[Event, ...]
    left_out: int = 0

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.events) + self.left_out - 1


class ThreadCodec(Protocol):
    """How one thread's head and records are written. Never changes while the thread lives."""

    def encode_head(self, thread: Thread) -> bytes:
        """Raises InvalidInput: the metadata has no JSON form."""

    def seal_record(self, first_seq: int, commit_id: str, body: bytes) -> bytes:
        """The bytes to keep for these events, at this place of the log alone."""

    def open_record(self, first_seq: int, commit_id: str, stored: bytes) -> bytes:
        """What `seal_record` was given. Raises StateCorrupt: these bytes are not of this place, or
        not written so."""


async def encoded_events(events: Sequence[Event], at: datetime) -> bytes:
    """As `encode_events`; many of them are encoded in a thread, so that the loop goes on."""
    if len(events) > LARGE_COMMIT:
        return await asyncio.to_thread(encode_events, events, at)
    return encode_events(events, at)


def encode_events(events: Sequence[Event], at: datetime) -> bytes:
    """The events' bytes, without their numbers: those are the record's place in the log.

    Their date is the record's own, `at`, and only one that differs is written with its event.

    Raises:
        InvalidInput: a value has no JSON form, such as NaN or half of a surrogate pair.
    """
    try:
        bodies = [
            event.__pydantic_serializer__.to_json(
                event, exclude=_ASSIGNED if event.at in (EPOCH, at) else _PLACE, exclude_none=True
            )
            for event in events
        ]
        moment = orjson.dumps(at, option=orjson.OPT_UTC_Z)
        body = b'{"v":%d,"at":%s,"events":[%s]}' % (FORMAT, moment, b",".join(bodies))
        if _is_suspect(body):
            _check_readable(events, body)
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidInput("An event holds a value that cannot be written as JSON.") from error
    return body


def record_checksum(
    thread_id: str, first_seq: int, commit_id: str, body: bytes, incarnation: str = ""
) -> int:
    place = f"{thread_id}\n{first_seq}\n{commit_id}\n{incarnation}".encode()
    return zlib.crc32(body, zlib.crc32(place))


def decode_record(
    thread_id: str,
    first_seq: int,
    commit_id: str,
    body: bytes,
    check: int,
    incarnation: str = "",
    *,
    after: int = 0,
    limit: int | None = None,
    written: ThreadCodec | None = None,
) -> Record:
    """The record these bytes hold, with its events after `after`, `limit` of them at most.

    `written` is how its thread is written, unless as plain JSON. The events of a long record are
    read in time proportional to their number, once it was read before.

    Raises:
        StateCorrupt: they are not what was written here.
        SchemaTooNew: a newer version wrote them.
    """
    if record_checksum(thread_id, first_seq, commit_id, body, incarnation) != check:
        raise StateCorrupt(
            "A stored record does not match its checksum.", thread_id=thread_id, seq=first_seq
        )
    if written is not None:
        body = written.open_record(first_seq, commit_id, body)
    try:
        start = max(after + 1 - first_seq, 0)
        key = (thread_id, incarnation, first_seq, commit_id, check, len(body))
        document, size = _LONG_RECORDS.part(key, body, start, limit)
        if document["v"] > FORMAT:
            raise SchemaTooNew(thread_id=thread_id, seq=first_seq)
        at = document["at"]
        events = tuple(
            event_from(_numbered(event, seq, at))
            for seq, event in enumerate(document["events"], first_seq + start)
        )
    except (ValueError, ValidationError, KeyError, TypeError) as error:
        raise StateCorrupt(
            "A stored record cannot be read.", thread_id=thread_id, seq=first_seq
        ) from error
    return Record(commit_id, first_seq, events, left_out=size - len(events))


def read_whole_log(thread: Thread, records: Sequence[StoredRecord]) -> list[Record]:
    """The records of a whole log that lies outside a store, checked against its head.

    Raises:
        StateCorrupt: they are not the log that the head describes, or not the one that it chains.
    """
    found: list[Record] = []
    due = 1
    for record in records:
        check = record_checksum(thread.thread_id, record.first_seq, record.commit_id, record.body)
        place = (thread.thread_id, record.first_seq, record.commit_id, record.body, check)
        found.append(decode_record(*place))
        if record.first_seq != due or not found[-1].events:
            raise StateCorrupt("A stored record is missing.", thread_id=thread.thread_id, seq=due)
        due = found[-1].last_seq + 1
    if due != thread.next_seq:
        raise StateCorrupt("A stored record is missing.", thread_id=thread.thread_id, seq=due)
    if thread.chain and last_chain(thread, records) != thread.chain:
        raise StateCorrupt("The log is not what its head chains.", thread_id=thread.thread_id)
    return found


def check_replay(record: Record, events: Sequence[Event]) -> tuple[Event, ...]:
    """The stored events of a commit that was sent again. Raises CommitReused: what is sent now is
    not what was stored then."""
    if _undated(events) != _undated(record.events):
        raise CommitReused(commit_id=record.commit_id)
    return record.events


def _undated(events: Sequence[Event]) -> bytes:
    return encode_events([event.model_copy(update={"at": EPOCH}) for event in events], EPOCH)


def _is_suspect(body: bytes) -> bool:
    """Whether it may hold what the serializer lets through and a reader does not: rare, and
    cheaper to look for than to rule out. `replace` finds a byte four times as fast as `count`."""
    return (
        (_N in body and body.find(b"NaN") >= 0)
        or (_I in body and body.find(b"Infinity") >= 0)
        or (not body.isascii() and body.find(_REPLACEMENT) >= 0)
        or len(body) - len(body.replace(b"{", b"").replace(b"[", b"")) > _SURELY_SHALLOW
    )


def _check_readable(events: Sequence[Event], body: bytes) -> None:
    from_json(body, allow_inf_nan=False)
    for event in events:
        _check_keys(event.model_dump())


def _check_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, member in value.items():
            str(key).encode()
            _check_keys(member)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_keys(item)


def _numbered(event: dict[str, Any], seq: int, at: str) -> dict[str, Any]:
    event["seq"] = seq
    event.setdefault("at", at)
    return event


class LongRecords:
    """Parts of long records, without parsing the rest of them. For any number of threads.

    An imported conversation is one record, however long it is. It is read in pages, and to parse
    all of it for each would take the square of its length. So the offsets of its events are found
    once, and kept for the records that were read last: a few bytes for each event.
    """

    # Shorter ones are parsed before the offsets of their events would be found.
    LONG = 64 * 1024
    KEPT = 8
    _HEAD = re.compile(rb'\{"v":\d+,"at":"[^"]*","events":\[')
    _TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def part(
        self, key: Hashable, body: bytes, start: int, limit: int | None
    ) -> tuple[dict[str, Any], int]:
        """The record's document with `limit` of its events from `start` on, and how many it has.

        Without a limit with all of them. `key` stands for exactly these bytes.

        Raises:
            ValueError: they are no record.
        """
        head = self._HEAD.match(body) if len(body) > self.LONG else None
        if head is None or limit is None:
            document = from_json(body)
            events = document["events"]
            end = None if limit is None else start + limit
            return {**document, "events": events[start:end]}, len(events)
        offsets = self._offsets_of(key, body, head.end())
        size = len(offsets) - 1
        first, last = min(start, size), min(start + limit, size)
        # One byte, a comma or the closing bracket, lies between two events.
        part = body[offsets[first] : offsets[last] - 1] if first < last else b""
        return from_json(b"%b%b]}" % (head[0], part)), size

    def _offsets_of(self, key: Hashable, body: bytes, begin: int) -> array[int]:
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
        found = self._offsets(body, begin)
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > self.KEPT:
                self._kept.popitem(last=False)
        return found

    def _offsets(self, body: bytes, begin: int) -> array[int]:
        """Where each event begins, and where one more would."""
        offsets = array("Q")
        depth = 0
        for token in self._TOKEN.finditer(body, begin):
            kind = token[0]
            if kind in b"{[":
                if depth == 0:
                    offsets.append(token.start())
                depth += 1
            elif kind in b"}]":
                if depth == 0:
                    offsets.append(token.end())
                    return offsets
                depth -= 1
        raise ValueError("the record does not end")


_LONG_RECORDS = LongRecords()


def encode_head(thread: Thread) -> bytes:
    """Raises InvalidInput if the metadata has no JSON form."""
    if not holds_only_text(thread.metadata):
        canonical_json(thread.metadata)  # orjson would silently write null for NaN
    try:
        return orjson.dumps(thread._asdict())
    except orjson.JSONEncodeError as error:
        raise InvalidInput("The metadata cannot be written as JSON.") from error


def holds_only_text(metadata: Mapping[str, Any]) -> bool:
    """As most metadata does: nothing in it can go wrong or be changed."""
    for value in metadata.values():
        if type(value) is not str:
            return False
    return True


def unshared(thread: Thread) -> Thread:
    """The head with metadata of its own, for a store that keeps it: callers hold the head that was
    returned to them, and what they do to it stays theirs."""
    if not thread.metadata:
        return thread
    metadata = dict(thread.metadata)
    own = metadata if holds_only_text(metadata) else deepcopy(metadata)
    return thread._replace(metadata=own)


def head_checksum(thread_id: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(thread_id.encode()))


def decode_head(thread_id: str, body: bytes, check: int) -> Thread:
    """The head these bytes hold. Raises StateCorrupt: they are not what was written for this
    thread; SchemaTooNew: a newer version wrote them."""
    if head_checksum(thread_id, body) != check:
        raise StateCorrupt("A stored head does not match its checksum.", thread_id=thread_id)
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # An encrypted one, for a process without keys, or one that somebody wrote.
        raise StateCorrupt("A stored head cannot be read.", thread_id=thread_id) from error
    return head_from(thread_id, fields)


def head_from(thread_id: str, fields: Any) -> Thread:
    """The head these fields describe; see `decode_head`."""
    if not isinstance(fields, dict):
        raise StateCorrupt("A stored head cannot be read.", thread_id=thread_id)
    version = fields.get("version")
    if isinstance(version, int) and version > HEAD_VERSION:
        raise SchemaTooNew(thread_id=thread_id)
    try:
        return _head(**{**fields, "version": HEAD_VERSION})
    except (TypeError, ValueError) as error:
        raise StateCorrupt("A stored head cannot be read.", thread_id=thread_id) from error


def _head(
    *, status: str, created_at: str, updated_at: str, expires_at: str | None, **others: Any
) -> Thread:
    return Thread(
        status=ThreadStatus(status),
        created_at=datetime.fromisoformat(created_at),
        updated_at=datetime.fromisoformat(updated_at),
        expires_at=datetime.fromisoformat(expires_at) if expires_at else None,
        **others,
    )
