"""Images in requests: data URIs whose bytes are what they say, in kinds every model reads.

Only the head of a picture is looked at, for its kind and its size: decoding it is the model's
business, and a decoder is what hostile pictures aim at.
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Callable, Mapping

MAX_IMAGE_BYTES = 8 * 1024 * 1024
MAX_PIXELS = 50_000_000

_DATA_URI = re.compile(r"data:(image/[a-z]+);base64,")
# The markers that start a frame of a JPEG; the others of the range are tables.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

Size = tuple[int, int]


def checked_image(uri: str) -> str:
    """The data URI itself.

    Raises:
        ValueError: not a data URI of a PNG, JPEG, GIF or WebP picture, or one that is too large.
    """
    head = _DATA_URI.match(uri)
    if head is None:
        raise ValueError("must be a data URI of an image in base64; addresses are not fetched")
    size_of = _SIZES.get(head[1])
    if size_of is None:
        raise ValueError(f"must be one of {', '.join(_SIZES)}")
    data = _decoded(uri[head.end() :])
    try:
        width, height = size_of(data)
    except (ValueError, IndexError, struct.error):
        raise ValueError(f"is not a picture of type {head[1]}") from None
    if not 0 < width * height <= MAX_PIXELS:
        raise ValueError(f"must have at most {MAX_PIXELS} pixels")
    return uri


def picture_type(data: bytes) -> str | None:
    """The media type of a picture, by its first bytes; `None` if it is none of those we know."""
    for media_type, size_of in _SIZES.items():
        try:
            size_of(data)
        except (ValueError, IndexError, struct.error):
            continue
        return media_type
    return None


def _decoded(text: str) -> bytes:
    if len(text) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise ValueError(f"must have at most {MAX_IMAGE_BYTES} bytes")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        raise ValueError("is not base64") from None


def _png_size(data: bytes) -> Size:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR":
        raise ValueError
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def _gif_size(data: bytes) -> Size:
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        raise ValueError
    width, height = struct.unpack("<HH", data[6:10])
    return width, height


def _jpeg_size(data: bytes) -> Size:
    if data[:3] != b"\xff\xd8\xff":
        raise ValueError
    at = 2
    while data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        if length < 2:
            break
        at += 2 + length
    raise ValueError


def _webp_size(data: bytes) -> Size:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        raise ValueError
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width = int.from_bytes(data[24:27], "little") + 1
            return width, int.from_bytes(data[27:30], "little") + 1
    raise ValueError


_SIZES: Mapping[str, Callable[[bytes], Size]] = {
    "image/png": _png_size,
    "image/jpeg": _jpeg_size,
    "image/gif": _gif_size,
    "image/webp": _webp_size,
}
