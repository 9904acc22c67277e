"""Texts of models, tools and other people, made harmless for a terminal.

Characters that would move the cursor, change colours, or hide or reorder text are written as an
escape (`\\x1b`): they are seen and do nothing. Letters of all scripts and emoji stay as they are.
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


def escaped(text: str) -> str:
    """The text with all that a terminal would obey escaped, except line breaks and tabs."""
    return _SUSPECT.sub(_visible, _RETURN.sub("\n", text))


def one_line(text: str) -> str:
    """The escaped text on one line."""
    return " ".join(escaped(text).split())


def valid_text(value: Any) -> Any:
    """A JSON value in which every lone surrogate, which is not text, is replaced by `\ufffd`."""
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return value
        case dict():
            return {key: valid_text(inner) for key, inner in value.items()}
        case list():
            return [valid_text(inner) for inner in value]
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
