"""How a commit is written: one record of JSON, sealed by a checksum.

The checksum covers the thread, its incarnation and the place in its log too, so a record that was
changed, cut, moved to another thread or left by a deleted one is recognised. A record is the unit
every store keeps: as a row, an item or a line.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from sk_agents.engine.events import Event, event_from
from sk_agents.engine.models import EPOCH
from sk_agents.exceptions import CommitReused, InvalidInput, SchemaTooNew, StateCorrupt
from sk_agents.persistence.record_parts import RecordParts

FORMAT = 1
_ASSIGNED = {"seq", "at"}
_PLACE = {"seq"}
# Deeper than a reader goes is only what opens more brackets than this, in all.
_SURELY_SHALLOW = 100
# The serializer makes U+FFFD of half a surrogate pair in an object's key, without a word.
_REPLACEMENT = "\ufffd".encode()
_PARTS = RecordParts()


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


def encode_events(events: Sequence[Event], at: datetime) -> bytes:
    """The events' bytes, without their numbers: those are the record's place in the log.

    Their date is the record's own, `at`, and only one that differs is written with its event.

    Raises:
        InvalidInput: a value has no JSON form, such as NaN or half of a surrogate pair.
    """
    try:
        bodies = [
            event.__pydantic_serializer__.to_json(
                event,
                exclude=_ASSIGNED if event.at in (at, EPOCH) else _PLACE,
                exclude_none=True,
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


def checksum(
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
) -> Record:
    """The record these bytes hold, with its events after `after`, `limit` of them at most.

    Those of a long record are read in time proportional to their number, once it was read before.

    Raises:
        StateCorrupt: they are not what was written here.
        SchemaTooNew: a newer version wrote them.
    """
    if checksum(thread_id, first_seq, commit_id, body, incarnation) != check:
        raise StateCorrupt(
            "A stored record does not match its checksum.", thread_id=thread_id, seq=first_seq
        )
    try:
        start = max(after + 1 - first_seq, 0)
        key = (thread_id, incarnation, first_seq, commit_id, check, len(body))
        document, size = _PARTS.document(key, body, start, limit)
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


def check_replay(record: Record, events: Sequence[Event]) -> tuple[Event, ...]:
    """The stored events of a commit that was sent again.

    Raises:
        CommitReused: what is sent now is not what was stored then.
    """
    if _undated(events) != _undated(record.events):
        raise CommitReused(commit_id=record.commit_id)
    return record.events


def _undated(events: Sequence[Event]) -> bytes:
    return encode_events([event.model_copy(update={"at": EPOCH}) for event in events], EPOCH)


def _is_suspect(body: bytes) -> bool:
    """Whether it may hold what the serializer lets through and a reader does not: rare, and
    cheaper to look for than to rule out."""
    return (
        body.find(b"NaN") >= 0
        or body.find(b"Infinity") >= 0
        or (not body.isascii() and body.find(_REPLACEMENT) >= 0)
        or body.count(b"{") + body.count(b"[") > _SURELY_SHALLOW
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
