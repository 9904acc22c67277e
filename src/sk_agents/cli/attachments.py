"""Files that go with a message: named in it as `@path`, or with an option."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sk_agents.client import file_item
from sk_agents.wire.requests import MAX_ITEMS

MENTION = re.compile(r'(?<!\S)@(?:"([^"]+)"|(\S+))')
PUNCTUATION = ".,;:!?)]}'"


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
        ValueError: one cannot be read, is too large, or is no text, picture or PDF; it names the
            file.
    """
    if len(paths) > MAX_ITEMS:
        raise ValueError(f"a message takes at most {MAX_ITEMS} files, these are {len(paths)}")
    return [file_item(path) for path in paths]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
