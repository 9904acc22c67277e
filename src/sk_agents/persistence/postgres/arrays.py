"""Arrays of parameters in PostgreSQL's binary form.

psycopg would choose the type of a list by its values, and an empty one would have none: each
combination would be another prepared statement. These say what they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import AsyncConnection
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = struct.Struct("!iii")
_BOUNDS = struct.Struct("!ii")
_LENGTH = struct.Struct("!i")
_INT8 = struct.Struct("!iq")
_NULL = _LENGTH.pack(-1)
_TRUE, _FALSE = _LENGTH.pack(1) + b"\1", _LENGTH.pack(1) + b"\0"
_START = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Array:
    """A column of values; `element` and `oid` are the types' numbers in every PostgreSQL."""

    element: int
    oid: int

    __slots__ = ("values",)

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    def items(self) -> Iterable[bytes]:
        raise NotImplementedError


class Int8Array(Array):
    element, oid = 20, 1016
    __slots__ = ()

    def items(self) -> Iterable[bytes]:
        return [_INT8.pack(8, value) for value in self.values]


class BoolArray(Array):
    element, oid = 16, 1000
    __slots__ = ()

    def items(self) -> Iterable[bytes]:
        return [_TRUE if value else _FALSE for value in self.values]


class BytesArray(Array):
    element, oid = 17, 1001
    __slots__ = ()

    def items(self) -> Iterable[bytes]:
        return [_LENGTH.pack(len(value)) + value for value in self.values]


class TextArray(Array):
    element, oid = 25, 1009
    __slots__ = ()

    def items(self) -> Iterable[bytes]:
        """Raises UnicodeEncodeError: half of a surrogate pair."""
        for value in self.values:
            if value is None:
                yield _NULL
            else:
                encoded = value.encode()
                yield _LENGTH.pack(len(encoded)) + encoded


class TimeArray(Array):
    element, oid = 1184, 1185
    __slots__ = ()

    def items(self) -> Iterable[bytes]:
        return [
            _NULL if value is None else _INT8.pack(8, (value - _START) // _MICROSECOND)
            for value in self.values
        ]


KINDS: tuple[type[Array], ...] = (Int8Array, BoolArray, BytesArray, TextArray, TimeArray)


class ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:
        size = len(obj.values)
        if not size:
            return _HEAD.pack(0, 0, obj.element)
        items = b"".join(obj.items())
        return _HEAD.pack(1, 1, obj.element) + _BOUNDS.pack(size, 1) + items


def register(connection: AsyncConnection[Any]) -> None:
    for kind in KINDS:
        dumper = type(f"{kind.__name__}Dumper", (ArrayDumper,), {"oid": kind.oid})
        connection.adapters.register_dumper(kind, dumper)
