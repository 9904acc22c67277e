"""Sealed lines, and what one line of a log holds: a commit or a claim, and the head and entries
after it.

A sealed line is one JSON object that shows whether it is whole, cut short or damaged. Its prefix
has a fixed width and a checksum of its own, so that a damaged size is not mistaken for a line whose
end was never written. Every checksum covers the line's place, too: a moved line is a damaged one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO

import orjson

from sk_agents.engine.models import Entry, Thread
from sk_agents.exceptions import StateCorrupt
from sk_agents.persistence.encoding import Record, decode_record, encode_head, record_checksum

SECTOR = 512

_HEADER = b'{"size":"%010d","crc":"%08x","check":"%08x","record":'
_TRAILER = b"}\n"
_BLANK_HEADER = _HEADER % (0, 0, 0)
_HEADER_FORM = re.compile(
    rb'\{"size":"(\d{10})","crc":"([0-9a-f]{8})","check":"[0-9a-f]{8}","record":'
)
# The head and the entries stand before the events and are read without them.
_START = b'{"state_size":"%010d","state":'
_MIDDLE = b',"body":'
_END = b"}"
_SIZE = slice(len(b'{"state_size":"'), len(b'{"state_size":"') + 10)


def seal(place: str, payload: bytes) -> bytes:
    """The line that holds `payload`, a JSON value, at `place`."""
    at = _place_checksum(place)
    return _header(at, len(payload), zlib.crc32(payload, at)) + payload + _TRAILER


def read_sealed(stream: BinaryIO, place: str) -> bytes | None:
    """The payload of the line that starts here; `None` if its end was never written. Raises
    StateCorrupt: these bytes are not what was written at this place."""
    header = stream.read(len(_BLANK_HEADER))
    if len(header) < len(_BLANK_HEADER):
        # Complete it from a blank one: what was written so far must fit.
        if not _HEADER_FORM.fullmatch(header + _BLANK_HEADER[len(header) :]):
            raise StateCorrupt("A stored line is damaged.")
        return None
    form = _HEADER_FORM.fullmatch(header)
    at = _place_checksum(place)
    if form is None or _header(at, int(form[1]), int(form[2], 16)) != header:
        raise StateCorrupt("A stored line is damaged, or stands in a wrong place.")
    size = int(form[1])
    rest = stream.read(size + len(_TRAILER))
    if len(rest) < size + len(_TRAILER):
        return None
    payload = rest[:size]
    if rest[size:] != _TRAILER or zlib.crc32(payload, at) != int(form[2], 16):
        raise StateCorrupt("A stored line does not match its checksum.")
    return payload


def is_torn(data: bytes, offset: int) -> bool:
    """Whether the disk lost a whole sector of these bytes, which begin at `offset` of their file.

    That is what power loss leaves of a line that was being written: JSON holds no zero bytes, and
    no other line follows one that was never acknowledged.
    """
    if b"\n" in data[:-1]:
        return False
    end = offset + len(data)
    while offset < end:
        size = min(SECTOR - offset % SECTOR, end - offset)
        start = len(data) - (end - offset)
        if not any(data[start : start + size]):
            return True
        offset += size
    return False


def _header(place_checksum: int, size: int, crc: int) -> bytes:
    return _HEADER % (size, crc, zlib.crc32(b"%010d%08x" % (size, crc), place_checksum))


def _place_checksum(place: str) -> int:
    return zlib.crc32(place.encode(errors="surrogatepass"))


@dataclass(frozen=True, slots=True)
class LogLine:
    """`commit_id` is None for a claim, which has no events either."""

    commit_id: str | None
    first_seq: int
    next_seq: int
    head: dict[str, Any]
    entries: tuple[Entry, ...]
    body: bytes


def encode_line(
    commit_id: str | None, first_seq: int, head: Thread, entries: Sequence[Entry], body: bytes
) -> bytes:
    """`body` comes from `encode_events`. Raises InvalidInput: the metadata has no JSON form."""
    parts = (orjson.dumps(commit_id), first_seq, encode_head(head), orjson.dumps(entries))
    state = b'{"commit_id":%s,"first_seq":%d,"head":%s,"entries":%s}' % parts
    return b"".join((_START % len(state), state, _MIDDLE, body, _END))


def decode_line(thread_id: str, payload: bytes) -> LogLine:
    """Raises StateCorrupt if the payload is no line."""
    try:
        start = len(_START % 0)
        end = start + int(payload[_SIZE])
        state = orjson.loads(payload[start:end])
        return LogLine(
            commit_id=state["commit_id"],
            first_seq=state["first_seq"],
            next_seq=state["head"]["next_seq"],
            head=state["head"],
            entries=tuple(_entry(**fields) for fields in state["entries"]),
            body=payload[end + len(_MIDDLE) : -len(_END)],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt("A stored line cannot be read.", thread_id=thread_id) from error


def record_of(thread_id: str, line: LogLine, *, after: int = 0, limit: int | None = None) -> Record:
    """The line's events, as `decode_record`. Raises StateCorrupt if its head counts others."""
    commit_id = line.commit_id or ""
    # The line as a whole was verified when it was read.
    check = record_checksum(thread_id, line.first_seq, commit_id, line.body)
    record = decode_record(
        thread_id, line.first_seq, commit_id, line.body, check, after=after, limit=limit
    )
    if record.last_seq + 1 != line.next_seq:
        raise StateCorrupt("The log has a gap.", thread_id=thread_id, seq=line.first_seq)
    return record


def _entry(*, due_at: str | None, **others: Any) -> Entry:
    return Entry(due_at=datetime.fromisoformat(due_at) if due_at else None, **others)
