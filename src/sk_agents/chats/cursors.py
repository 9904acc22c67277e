"""Where a reader of a stream was: the ids of stored events, and going on after one.

An id is the event's place in the log and a checksum of what tells this event from any other. The
place alone is not enough: after a backup was restored, or the chat was deleted and made again,
another event stands there, and a reader that went on behind it would miss what came in between.
The checksum is computed from the event, so it is the same at every instance and at every time.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple, Self

from sk_agents.engine.events import Event
from sk_agents.exceptions import CursorAhead, MalformedRequest

PATTERN = "[0-9]+-[0-9a-f]{8}"
"""Of an event's id."""
MAX_DIGITS = 18
_CURSOR = re.compile("([0-9]+)(?:-([0-9a-f]{8}))?")


def event_id(event: Event) -> str:
    return f"{event.seq}-{_tag(event)}"


def _tag(event: Event) -> str:
    named = f"{event.run_id}\n{event.type}\n{event.at.isoformat()}"
    return f"{zlib.crc32(named.encode()):08x}"


class Cursor(NamedTuple):
    """After which event a reader goes on; without a `tag`, after whatever stands at `seq`."""

    seq: int
    tag: str | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises:
        MalformedRequest: this is no event's id.
        CursorAhead: no log comes that far.
        """
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise MalformedRequest("An event id is what a stream gave as one, or a number.")
        if len(found[1]) > MAX_DIGITS:
            raise CursorAhead
        return cls(int(found[1]), found[2])

    def names(self, event: Event) -> bool:
        return self.seq == event.seq and self.tag in (None, _tag(event))


def cursor_of(headers: Sequence[tuple[bytes, bytes]], after: Sequence[str]) -> Cursor | None:
    """Where a reader was, by `Last-Event-ID` or `after`; an empty one is the start.

    Raises:
        MalformedRequest: both are given and differ, or one is not an event's id.
        CursorAhead: no log comes that far.
    """
    sent = [value.decode("latin-1") for name, value in headers if name == b"last-event-id"]
    given = [*sent, *after]
    cursors = {Cursor.of(value) for value in given if value != ""}
    if len(cursors) > 1:
        raise MalformedRequest("Last-Event-ID and after name different events.")
    if cursors:
        return cursors.pop()
    return Cursor(0) if given else None
