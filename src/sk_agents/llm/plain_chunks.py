"""Chunks that are a piece of text and nothing else, as nearly all of a stream are.

Those of one stream differ in their text alone. What stands around it is learnt from one of them;
those that follow are recognised by it and need not be parsed. Where many tokens arrive in one read,
as from a model on the same network, a turn of 32 tokens takes 0.1 ms less CPU of 0.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

# Where every chunk differs in more than its text, trying to learn comes to an end.
LESSONS = 8
# No chunk begins like this.
NO_CHUNK = b"\0"
# As numbers: looking for a byte is four times as fast as looking for bytes.
BACKSLASH, QUOTE = b'\\"'


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

    __slots__ = ("_after", "_are_alike", "_before", "_lessons")

    def __init__(self) -> None:
        self._before = NO_CHUNK
        self._after = b""
        self._lessons = LESSONS
        self._are_alike = True

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

    def text(self, events: list[bytes], start: int) -> tuple[str, int]:
        """The text of the events from `start` on that are known to be plain, and their number."""
        if not events[start].startswith(self._before):
            return "", 0
        run = events[start:]
        texts = self._together(run) if self._are_alike else None
        if texts is None:
            texts = self._one_by_one(run)
        try:
            return _decoded(texts), len(texts)
        except ValueError:
            # More differs than the text: from now on all are parsed.
            self._before, self._lessons = NO_CHUNK, 0
            return "", 0

    def _together(self, run: list[bytes]) -> list[bytes] | None:
        """Their texts if all but the last are plain, in half the time of one after the other."""
        before, after = self._before, self._after
        while not run[-1].startswith(before):
            # The end of a stream says more than text.
            run.pop()
        first, last = len(before), -len(after)
        texts = [data[first:last] for data in run]
        if b"%b%b%b" % (before, (after + before).join(texts), after) == b"".join(run):
            return texts
        # Or every few chunks all that follow would be looked at, in vain.
        self._are_alike = False
        return None

    def _one_by_one(self, run: list[bytes]) -> list[bytes]:
        before, after = self._before, self._after
        least = len(before) + len(after)
        texts = []
        for data in run:
            if not (data.startswith(before) and data.endswith(after) and len(data) >= least):
                break
            texts.append(data[len(before) : -len(after)])
        return texts


def _decoded(texts: Sequence[bytes]) -> str:
    """What these insides of JSON strings say, if that is what they are."""
    joined = b"".join(texts)
    if BACKSLASH in joined or QUOTE in joined:
        return "".join([orjson.loads(b'"%s"' % text) for text in texts])
    return joined.decode()
