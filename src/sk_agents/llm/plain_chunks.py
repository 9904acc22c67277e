"""Chunks that are a piece of text and nothing else, as nearly all of a stream are.

Those of one stream differ in their text alone. What stands around it is learnt from one of them;
those that follow are recognised by it and need not be parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

# Where every chunk differs in more than its text, trying to learn comes to an end.
LESSONS = 8
# No chunk begins like this.
NO_CHUNK = b"\0"


def plain_text(chunk: Any) -> str | None:
    """Its text, if there is nothing else to know about it."""
    try:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        content = delta["content"]
        is_plain = len(delta) == 1 and choice["finish_reason"] is None
    except (KeyError, TypeError, ValueError):
        return None
    if not is_plain or type(content) is not str or "error" in chunk or chunk.get("usage"):
        return None
    return content


class PlainChunks:
    """What is known of the plain chunks of one stream."""

    __slots__ = ("_after", "_before", "_lessons")

    def __init__(self) -> None:
        self._before = NO_CHUNK
        self._after = b""
        self._lessons = LESSONS

    def learn(self, data: bytes, text: str) -> None:
        """`data` is a plain chunk with this text."""
        if not self._lessons:
            return
        self._lessons -= 1
        before, found, rest = data.partition(b'"content":')
        quote = b' "' if rest.startswith(b" ") else b'"'
        spelt = quote + text.encode(errors="replace") + b'"'
        if rest.startswith(spelt) and b'"content":' not in rest:
            self._before = before + found + quote
            self._after = rest[len(spelt) - 1 :]

    def text(self, events: Sequence[bytes], start: int) -> tuple[str, int]:
        """The text of the events from `start` on that are known to be plain, and their number."""
        before, after = self._before, self._after
        if not events[start].startswith(before):
            return "", 0
        first, last = len(before), -len(after)
        least = first + len(after)
        texts = []
        for data in events[start:]:
            if not (data.startswith(before) and data.endswith(after) and len(data) >= least):
                break
            texts.append(data[first:last])
        try:
            return _decoded(texts), len(texts)
        except ValueError:
            # More differs than the text: from now on all are parsed.
            self._before, self._lessons = NO_CHUNK, 0
            return "", 0


def _decoded(texts: Sequence[bytes]) -> str:
    """What these insides of JSON strings say, if that is what they are."""
    joined = b"".join(texts)
    if b"\\" in joined or b'"' in joined:
        return "".join([orjson.loads(b'"%s"' % text) for text in texts])
    return joined.decode()
