"""What a run is saying right now, before it is stored: previews, for readers in this process.

Readers pull, when they are told that there is more. Each remembers how far it has read; what it
missed while it was slow comes as one piece. So a slow or absent reader costs nothing, and one that
attaches late gets the text so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sk_agents.engine.events import Answered, Event, ToolProposed

# Of one call: what is beyond is in its result, as far as that is kept.
MAX_OUTPUT = 1_048_576

DeltaKind = Literal["answer", "thinking", "tool_output"]


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of text as it appears; void once a higher `attempt` of its round begins."""

    kind: DeltaKind
    run_id: str
    content: str
    offset: int
    round: int = 0
    attempt: int = 1
    call_id: str | None = None


StreamKey = tuple[DeltaKind, int, int, str | None]
Listener = Callable[[], None]

_NOTHING = (0, 0)
# A reader is given no more text than this at once, and one chunk.
MOST_CHARACTERS = 32 * 1024


@dataclass(slots=True)
class _Stream:
    chunks: list[str] = field(default_factory=list)
    length: int = 0

    def end_of_piece(self, count: int, offset: int) -> int:
        """Up to which chunk a reader is given, who has so many chunks and characters already."""
        if self.length - offset <= MOST_CHARACTERS:
            return len(self.chunks)
        size = 0
        for end in range(count, len(self.chunks)):
            size += len(self.chunks[end])
            if size > MOST_CHARACTERS and end > count:
                return end
        return len(self.chunks)


# What a round comes to.
_ROUND_ENDS = frozenset((Answered, ToolProposed))


class LiveRun:
    """The open round of one run: its text, its reasoning, its tools' output."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._streams: dict[StreamKey, _Stream] = {}
        self._closed_calls: set[str] = set()
        # Those who have read everything and wait for more.
        self.listeners: list[Listener] = []
        self._round = 1
        self._attempt = 1

    def begin(self, number: int, attempt: int) -> None:
        """A new round or attempt: what the last one said is stored by now, or void."""
        self._round, self._attempt = number, attempt
        self._streams = {key: s for key, s in self._streams.items() if key[0] == "tool_output"}

    def say(self, kind: Literal["answer", "thinking"], text: str) -> None:
        self._append((kind, self._round, self._attempt, None), text)

    def output(self, call_id: str, text: str) -> None:
        key: StreamKey = ("tool_output", 0, 1, call_id)
        shown = self._streams[key].length if key in self._streams else 0
        if call_id not in self._closed_calls and shown < MAX_OUTPUT:
            self._append(key, text[: MAX_OUTPUT - shown])

    def tell(self) -> None:
        """There is more to read."""
        for listener in self.listeners:
            listener()

    def stored(self, events: Sequence[Event]) -> None:
        """These are about to be shown: no preview of what they hold may follow."""
        if not _ROUND_ENDS.isdisjoint(map(type, events)):
            self.close_round()

    def close_round(self) -> None:
        """No preview of it may follow."""
        self.begin(self._round, self._attempt)

    def close_call(self, call_id: str) -> None:
        """As `close_round`; a tool that was left behind may go on talking."""
        self._closed_calls.add(call_id)
        self._streams.pop(("tool_output", 0, 1, call_id), None)

    def text(self) -> str:
        stream = self._streams.get(("answer", self._round, self._attempt, None))
        return "".join(stream.chunks) if stream else ""

    def is_ahead_of(self, seen: Mapping[StreamKey, tuple[int, int]]) -> bool:
        for key, stream in self._streams.items():
            if len(stream.chunks) > seen.get(key, _NOTHING)[0]:
                return True
        return False

    def since(self, seen: dict[StreamKey, tuple[int, int]]) -> Iterator[Delta]:
        """What is new to a reader who has `seen` so many chunks and characters of each stream."""
        for key, stream in self._streams.items():
            count, offset = seen.get(key, _NOTHING)
            if count < len(stream.chunks):
                kind, number, attempt, call_id = key
                end = stream.end_of_piece(count, offset)
                content = "".join(stream.chunks[count:end])
                seen[key] = (end, offset + len(content))
                yield Delta(kind, self.run_id, content, offset, number, attempt, call_id)

    def _append(self, key: StreamKey, text: str) -> None:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream()
        stream.chunks.append(text)
        stream.length += len(text)
