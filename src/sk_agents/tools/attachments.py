"""What tools return beside text: pictures, sounds, files and links, as attachments of the result.

The model reads a line about each of them and is shown the pictures if it can see. Bytes never
become a text: in base64 they would fill a prompt and mean nothing.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel

from sk_agents.engine.models import PICTURES, Attachment
from sk_agents.engine.turns import Preview, PreviewPicture, PreviewTable, ToolResult
from sk_agents.tools.base_tool import text_of
from sk_agents.wire.images import checked_image, picture_type

UNKNOWN_TYPE = "application/octet-stream"
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")
_DATA_URI = re.compile(r"data:([a-z0-9.+/-]+)(?:;[a-z0-9=.-]+)*;base64,", re.IGNORECASE)
# A result is looked through for files so far and so deep; the rest is written as text.
MOST_VALUES = 10_000
MOST_DEPTH = 12


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A picture or a file that a tool returns. Without a media type it is found out."""

    data: bytes
    media_type: str | None = None
    name: str | None = None


@dataclass(slots=True)
class Collected:
    """A result while it is put together: texts, and what is kept beside them."""

    texts: list[str] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)

    def add_file(self, data: bytes, media_type: str | None, name: str | None) -> str:
        """The line about it."""
        attachment = file_attachment(data, media_type, name)
        self.attachments.append(attachment)
        return described(attachment)

    def add_link(self, uri: str, media_type: str | None, name: str | None) -> str:
        kind = _checked_type(media_type) or UNKNOWN_TYPE
        self.attachments.append(Attachment(media_type=kind, uri=uri, name=name))
        return f"[link {uri}{f' ({name})' if name else ''}]"

    def add_address(self, address: str, media_type: str | None, name: str | None) -> str:
        """A data URI or another address, which is not fetched."""
        head = _DATA_URI.match(address)
        if head is None:
            return self.add_link(address, media_type, name)
        return self.add_base64(address[head.end() :], media_type or head[1].lower(), name)

    def add_base64(self, text: str, media_type: str | None, name: str | None) -> str:
        try:
            data = binascii.a2b_base64(text.encode(), strict_mode=True)
        except (binascii.Error, UnicodeEncodeError):
            return f"[{media_type or 'file'}: it cannot be read]"
        return self.add_file(data, media_type, name)

    def result(self, extra_data: Mapping[str, Any] | None = None) -> ToolResult:
        text = "\n".join(self.texts)
        return ToolResult(text, extra_data, attachments=tuple(self.attachments))


def file_attachment(data: bytes, media_type: str | None, name: str | None) -> Attachment:
    kind = _checked_type(media_type)
    if kind is None or kind in PICTURES:
        # What is said to be a picture is believed only if it is one.
        guess = mimetypes.guess_type(name or "")[0] if kind is None else None
        kind = picture_type(data) or (guess if guess not in PICTURES else None) or UNKNOWN_TYPE
    uri = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    if kind in PICTURES and not _is_usable(uri):
        kind, uri = UNKNOWN_TYPE, uri.replace(kind, UNKNOWN_TYPE, 1)
    return Attachment(media_type=kind, uri=uri, size=len(data), name=name)


def described(attachment: Attachment) -> str:
    what = "picture" if attachment.is_picture else attachment.media_type.partition("/")[0]
    what = what if what in {"picture", "audio", "video", "image"} else "file"
    name = f" {attachment.name}" if attachment.name else ""
    return f"[{what}{name}: {attachment.media_type}, {attachment.size} bytes]"


def result_of(value: object, extra_data: Mapping[str, Any] | None = None) -> ToolResult:
    """What a tool's function returned: bytes, files and pictures as attachments, wherever they are
    in it, and the rest as text."""
    if not _holds_files(value):
        return ToolResult(text_of(value), extra_data)
    found = Collected()
    is_several = isinstance(value, list | tuple) and any(map(_is_file, value))
    for part in cast("Sequence[object]", value) if is_several else [value]:
        found.texts.append(text_of(_without_files(part, found, MOST_DEPTH)))
    return found.result(extra_data)


def preview_of(value: object) -> Preview | None:
    """What a plugin returned as a preview.

    Raises:
        TypeError: it is none.
    """
    match value:
        case None | str() | PreviewTable():
            return value
        case ToolFile():
            attachment = file_attachment(value.data, value.media_type, value.name)
            if attachment.is_picture:
                return PreviewPicture(attachment.uri)
    raise TypeError("a preview is a text, a PreviewTable, a ToolFile with a picture, or None")


def _holds_files(value: object) -> bool:
    """Whether one is among the first values; a huge result is not looked through."""
    left, seen = [value], {id(value)}
    for _ in range(MOST_VALUES):
        if not left:
            return False
        one = left.pop()
        if _is_file(one):
            return True
        inner = [member for member in _members(one) if id(member) not in seen]
        seen.update(map(id, inner))
        left.extend(inner)
    return False


def _members(value: object) -> Iterable[Any]:
    match value:
        case dict():
            return value.values()
        case list() | tuple():
            return value
        case BaseModel():
            return vars(value).values()
        case _:
            return ()


def _is_file(value: object) -> bool:
    if isinstance(value, str):
        return value.startswith("data:image/") and _is_usable(value)
    return isinstance(value, bytes | bytearray | memoryview | ToolFile) or _is_foreign(value)


def _is_foreign(value: object) -> bool:
    """A picture of a library: of Pillow, or of anything else that a notebook can show as PNG; or
    binary content of Semantic Kernel."""
    if isinstance(value, type):
        return False
    draws = callable(getattr(type(value), "_repr_png_", None))
    return draws or hasattr(type(value), "data_uri")


def _without_files(value: Any, found: Collected, depth: int) -> Any:
    """The value with a line in place of each file."""
    if _is_file(value):
        return _taken(value, found)
    if depth == 0 or not _holds_files(value):
        return value
    if isinstance(value, list | tuple):
        return [_without_files(inner, found, depth - 1) for inner in value]
    return {key: _without_files(inner, found, depth - 1) for key, inner in dict(value).items()}


def _taken(value: Any, found: Collected) -> str:
    if isinstance(value, str):
        return found.add_address(value, None, None)
    if isinstance(value, ToolFile):
        return found.add_file(bytes(value.data), value.media_type, value.name)
    if isinstance(value, bytes | bytearray | memoryview):
        return found.add_file(bytes(value), None, None)
    if (address := getattr(value, "data_uri", None)) and isinstance(address, str):
        return found.add_address(address, None, None)
    drawn = value._repr_png_()
    return found.add_file(drawn, "image/png", None) if isinstance(drawn, bytes) else text_of(value)


def _checked_type(media_type: str | None) -> str | None:
    """Without its parameters; `None` if it is no media type."""
    kind = (media_type or "").partition(";")[0].strip().lower()
    return kind if _TYPE.fullmatch(kind) else None


def _is_usable(uri: str) -> bool:
    try:
        checked_image(uri)
    except ValueError:
        return False
    return True
