"""The text of a run as it appears, before it is stored: deltas, for readers in this process.

Readers pull when a listener of theirs was called. Each remembers how far it has read; what it
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
# A reader is given no more text than this at once, and one chunk.
MOST_CHARACTERS = 32 * 1024

DeltaKind = Literal["answer", "thinking", "tool_output"]
StreamKey = tuple[DeltaKind, int, int, str | None]
Listener = Callable[[], None]

_NOTHING = (0, 0)
_ROUND_ENDS = frozenset((Answered, ToolProposed))


@dataclass(frozen=True, slots=True)
class LiveDelta:
    """A piece of text as it appears; void once a higher `attempt` of its round begins."""

    kind: DeltaKind
    run_id: str
    content: str
    offset: int
    round: int = 0
    attempt: int = 1
    call_id: str | None = None


@dataclass(slots=True)
class _Stream:
    chunks: list[str] = field(default_factory=list)
    length: int = 0

    def end_of_piece(self, count: int, offset: int) -> int:
        """The chunk before which the next piece ends, for a reader that has so many chunks and
        characters."""
        if self.length - offset <= MOST_CHARACTERS:
            return len(self.chunks)
        size = 0
        for end in range(count, len(self.chunks)):
            size += len(self.chunks[end])
            if size > MOST_CHARACTERS and end > count:
                return end
        return len(self.chunks)


class LiveRun:
    """The open round of one run: its text, its reasoning, its tools' output.

    `listeners` are called when there is more: those of readers that have read everything.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.listeners: list[Listener] = []
        self._streams: dict[StreamKey, _Stream] = {}
        self._closed_calls: set[str] = set()
        self._round = 1
        self._attempt = 1

    def begin(self, number: int, attempt: int) -> None:
        """A new round or attempt: the text of the last one is stored by now, or void."""
        self._round, self._attempt = number, attempt
        self._streams = {key: s for key, s in self._streams.items() if key[0] == "tool_output"}

    def add_text(self, kind: Literal["answer", "thinking"], text: str) -> None:
        self._append((kind, self._round, self._attempt, None), text)

    def add_output(self, call_id: str, text: str) -> None:
        key: StreamKey = ("tool_output", 0, 1, call_id)
        shown = self._streams[key].length if key in self._streams else 0
        if call_id not in self._closed_calls and shown < MAX_OUTPUT:
            self._append(key, text[: MAX_OUTPUT - shown])

    def call_listeners(self) -> None:
        for listener in self.listeners:
            listener()

    def stored(self, events: Sequence[Event]) -> None:
        """Readers are about to get these events: no delta of what they hold may follow."""
        if not _ROUND_ENDS.isdisjoint(map(type, events)):
            self.close_round()

    def close_round(self) -> None:
        """No delta of it may follow."""
        self.begin(self._round, self._attempt)

    def close_call(self, call_id: str) -> None:
        """No delta of it may follow, even if the tool was abandoned and goes on printing."""
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

    def deltas_since(self, seen: dict[StreamKey, tuple[int, int]]) -> Iterator[LiveDelta]:
        """What is new to a reader that has `seen` so many chunks and characters of each stream;
        `seen` is moved on."""
        for key, stream in self._streams.items():
            count, offset = seen.get(key, _NOTHING)
            if count < len(stream.chunks):
                kind, number, attempt, call_id = key
                end = stream.end_of_piece(count, offset)
                content = "".join(stream.chunks[count:end])
                seen[key] = (end, offset + len(content))
                yield LiveDelta(kind, self.run_id, content, offset, number, attempt, call_id)

    def _append(self, key: StreamKey, text: str) -> None:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream()
        stream.chunks.append(text)
        stream.length += len(text)
