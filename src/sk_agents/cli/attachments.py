"""Files that go with a message: named in it as `@path`, or with an option."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sk_agents.wire.images import MAX_IMAGE_BYTES
from sk_agents.wire.requests import MAX_ITEMS, MAX_TEXT_BYTES

MENTION = re.compile(r'(?<!\S)@(?:"([^"]+)"|(\S+))')
PUNCTUATION = ".,;:!?)]}'"
SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def mentioned_files(message: str) -> list[Path]:
    """The files that the message names; a word after `@` that is no file is only a word."""
    found: dict[Path, None] = {}
    for mention in MENTION.finditer(message):
        quoted, plain = mention.groups()
        for name in (quoted,) if quoted else (plain, plain.rstrip(PUNCTUATION)):
            path = Path(name).expanduser()
            if _is_file(path):
                found[path] = None
                break
    return list(found)


def missing_files(message: str) -> list[str]:
    """Words after `@` that look like a file's path and name none."""
    found = {str(path) for path in mentioned_files(message)}
    names = [quoted or plain for quoted, plain in MENTION.findall(message)]
    return [
        name
        for name in names
        if ("/" in name or "." in name.strip("."))
        and not {str(Path(name).expanduser()), str(Path(name.rstrip(PUNCTUATION)).expanduser())}
        & found
    ]


def read_items(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The files as a message carries them.

    Raises:
        ValueError: one cannot be read, is too large, or is neither text nor a picture; it names
            the file.
    """
    if len(paths) > MAX_ITEMS:
        raise ValueError(f"a message takes at most {MAX_ITEMS} files, these are {len(paths)}")
    return [_item(path) for path in paths]


def _item(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    kind = next((kind for start, kind in SIGNATURES if data.startswith(start)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is not None:
        if len(data) > MAX_IMAGE_BYTES:
            raise ValueError(f"{path} is too large: a picture may have {MAX_IMAGE_BYTES} bytes")
        content = f"data:{kind};base64,{b64encode(data).decode()}"
        return {"content_type": "image", "content": content, "name": path.name}
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"{path} is too large: a text may have {MAX_TEXT_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is neither text nor a PNG, JPEG, GIF or WebP picture") from None
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return {"content_type": "text", "content": text, "name": path.name}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
