"""The messages of a prompt, without copying the past into every one of them.

A conversation of hundreds of turns is sent again with each: what was said before is one list that
only grows, and what a model client made of it grows along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import overload

from sk_agents.engine.models import Message


@dataclass(slots=True)
class SentPast:
    """Where a model client keeps the first `count` messages of the past as it sends them."""

    wire: bytearray = field(default_factory=bytearray)
    count: int = 0


class Conversation(Sequence[Message]):
    """`instructions`, the first `past_length` messages of `past`, and what is being said `now`."""

    __slots__ = ("instructions", "now", "past", "past_length", "sent")

    def __init__(
        self,
        instructions: Sequence[Message],
        past: Sequence[Message],
        sent: SentPast,
        now: Sequence[Message],
    ) -> None:
        self.instructions = instructions
        self.past = past
        self.past_length = len(past)
        self.sent = sent
        self.now = now

    def __len__(self) -> int:
        return len(self.instructions) + self.past_length + len(self.now)

    def __iter__(self) -> Iterator[Message]:
        return chain(self.instructions, islice(self.past, self.past_length), self.now)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        if isinstance(at, int) and -len(self.now) <= at < 0:
            return self.now[at]
        return list(self)[at]
