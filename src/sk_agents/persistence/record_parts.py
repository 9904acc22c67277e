"""A part of a long record, without parsing the rest of it.

A conversation that was brought in is one record, however long it is. It is read in pages, and to
parse all of it for each would take the square of its length. So where its events begin is looked
up once, and remembered for the records that were read last.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from pydantic_core import from_json

# Shorter ones are parsed before their events' places would be found.
LONG = 64 * 1024
REMEMBERED = 8

_HEAD = re.compile(rb'\{"v":\d+,"at":"[^"]*","events":\[')
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


class RecordParts:
    """For any number of threads. What it remembers of a record is a few bytes for each event."""

    def __init__(self) -> None:
        self._places: OrderedDict[Hashable, array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def document(
        self, key: Hashable, body: bytes, start: int, limit: int | None
    ) -> tuple[dict[str, Any], int]:
        """The record's document with `limit` of its events from `start` on, and how many it has.

        Without a limit with all of them. `key` stands for exactly these bytes.

        Raises:
            ValueError: they are no record.
        """
        head = _HEAD.match(body) if len(body) > LONG else None
        if head is None or limit is None:
            document = from_json(body)
            events = document["events"]
            end = None if limit is None else start + limit
            return {**document, "events": events[start:end]}, len(events)
        places = self._places_of(key, body, head.end())
        size = len(places) - 1
        first, last = min(start, size), min(start + limit, size)
        # One byte, a comma or the closing bracket, lies between two places.
        part = body[places[first] : places[last] - 1] if first < last else b""
        return from_json(b"%b%b]}" % (head[0], part)), size

    def _places_of(self, key: Hashable, body: bytes, begin: int) -> array[int]:
        with self._lock:
            known = self._places.get(key)
            if known is not None:
                self._places.move_to_end(key)
                return known
        found = _places(body, begin)
        with self._lock:
            self._places[key] = found
            while len(self._places) > REMEMBERED:
                self._places.popitem(last=False)
        return found


def _places(body: bytes, begin: int) -> array[int]:
    """Where each event begins, and where one more would."""
    places = array("Q")
    depth = 0
    for token in _TOKEN.finditer(body, begin):
        kind = token[0]
        if kind in b"{[":
            if depth == 0:
                places.append(token.start())
            depth += 1
        elif kind in b"}]":
            if depth == 0:
                places.append(token.end())
                return places
            depth -= 1
    raise ValueError("the record does not end")
