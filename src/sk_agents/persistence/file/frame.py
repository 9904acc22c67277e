"""A sealed line: one JSON object that shows whether it is whole, cut short or damaged.

Its prefix has a fixed width and a checksum of its own, so that a damaged size is not mistaken for
a line whose end was never written. Every checksum covers the line's place, too: a line that was
moved is a damaged line.
"""

from __future__ import annotations

import re
import zlib
from typing import BinaryIO

from sk_agents.exceptions import StateCorrupt

SECTOR = 512

_HEADER = b'{"size":"%010d","crc":"%08x","check":"%08x","record":'
_TRAILER = b"}\n"
_BLANK_HEADER = _HEADER % (0, 0, 0)
_HEADER_FORM = re.compile(
    rb'\{"size":"(\d{10})","crc":"([0-9a-f]{8})","check":"[0-9a-f]{8}","record":'
)


def seal(place: str, payload: bytes) -> bytes:
    """The line that holds `payload`, a JSON value, at `place`."""
    at = _place_checksum(place)
    return _header(at, len(payload), zlib.crc32(payload, at)) + payload + _TRAILER


def read_sealed(stream: BinaryIO, place: str) -> bytes | None:
    """The payload of the line that starts here; `None` if its end was never written.

    Raises:
        StateCorrupt: these bytes are not what was written at this place.
    """
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
