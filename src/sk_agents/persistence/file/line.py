"""What one line of a log file holds: a commit or a claim, and the head and index rows after it.

The head and the rows stand before the events and are read without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from sk_agents.engine.models import Entry, Thread
from sk_agents.exceptions import StateCorrupt
from sk_agents.persistence.head import encode_head
from sk_agents.persistence.record import Record, checksum, decode_record

_START = b'{"state_size":"%010d","state":'
_MIDDLE = b',"body":'
_END = b"}"
_SIZE = slice(len(b'{"state_size":"'), len(b'{"state_size":"') + 10)


@dataclass(frozen=True, slots=True)
class Line:
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
    """`body` comes from `encode_events`.

    Raises:
        InvalidInput: the metadata has no JSON form.
    """
    state = b'{"commit_id":%s,"first_seq":%d,"head":%s,"entries":%s}' % (
        orjson.dumps(commit_id),
        first_seq,
        encode_head(head),
        orjson.dumps(entries),
    )
    return b"".join((_START % len(state), state, _MIDDLE, body, _END))


def decode_line(thread_id: str, payload: bytes) -> Line:
    """Raises StateCorrupt if the payload is no line."""
    try:
        start = len(_START % 0)
        end = start + int(payload[_SIZE])
        state = orjson.loads(payload[start:end])
        return Line(
            commit_id=state["commit_id"],
            first_seq=state["first_seq"],
            next_seq=state["head"]["next_seq"],
            head=state["head"],
            entries=tuple(_entry(**fields) for fields in state["entries"]),
            body=payload[end + len(_MIDDLE) : -len(_END)],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt("A stored line cannot be read.", thread_id=thread_id) from error


def record_of(thread_id: str, line: Line, *, after: int = 0, limit: int | None = None) -> Record:
    """The line's events, as `decode_record`. Raises StateCorrupt if its head counts others."""
    commit_id = line.commit_id or ""
    # The line as a whole was verified when it was read.
    check = checksum(thread_id, line.first_seq, commit_id, line.body)
    record = decode_record(
        thread_id, line.first_seq, commit_id, line.body, check, after=after, limit=limit
    )
    if record.last_seq + 1 != line.next_seq:
        raise StateCorrupt("The log has a gap.", thread_id=thread_id, seq=line.first_seq)
    return record


def _entry(*, due_at: str | None, **others: Any) -> Entry:
    return Entry(due_at=datetime.fromisoformat(due_at) if due_at else None, **others)
