"""Texts of models, tools and strangers, made harmless for a terminal.

What would move the cursor, change colours, hide or reorder text is spelt out (`\\x1b`), so that it
is seen and does nothing. Letters of all scripts, wide ones and emoji stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

# Controls, formatting and lone surrogates can do something; line separators break a layout.
_ACTIVE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Joiners: emoji and several scripts are written with them.
_KEPT = frozenset("\n\t\u200c\u200d")
_SUSPECT = re.compile(r"[^ -~\n\t\u00a1-\u00ac\u00ae-\u0377]")
_RETURN = re.compile("\r\n?")


def neutral(text: str) -> str:
    """The text with everything but line breaks and tabs that a terminal would obey spelt out."""
    return _SUSPECT.sub(_visible, _RETURN.sub("\n", text))


def one_line(text: str) -> str:
    """The same on one line."""
    return " ".join(neutral(text).split())


def sendable(value: Any) -> Any:
    """A JSON value with nothing in it that is no text: halves of letters become `\ufffd`."""
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return value
        case dict():
            return {key: sendable(inner) for key, inner in value.items()}
        case list():
            return [sendable(inner) for inner in value]
        case _:
            return value


def _visible(match: re.Match[str]) -> str:
    char = match[0]
    if char in _KEPT or unicodedata.category(char) not in _ACTIVE:
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
