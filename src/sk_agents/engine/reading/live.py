"""The text of a run as it appears, before it is stored: deltas, for readers in this process.

Readers of a run that another instance drives have a copy of its text (`MirroredRun`), which
`live_relay` keeps up to date.

Readers pull when a listener of theirs was called. Each remembers how far it has read; what it
missed while it was slow comes as one piece. So a slow or absent reader costs nothing, and one that
attaches late gets the text so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal

from sk_agents.engine.events import Answered, Event, SteeringDelivered, ToolProposed
from sk_agents.engine.values import dataclass

# Of one call: what is beyond is in its result, as far as that is kept.
MAX_OUTPUT = 1_048_576
# A reader is given no more text than this at once, and one chunk.
MOST_CHARACTERS = 32 * 1024

DeltaKind = Literal["answer", "thinking", "tool_output"]
StreamKey = tuple[DeltaKind, int, int, str | None]
Listener = Callable[[], None]

_NOTHING = (0, 0)
_ROUND_ENDS = frozenset((Answered, SteeringDelivered, ToolProposed))


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

    def deltas_since(self, seen: dict[StreamKey, tuple[int, int]]) -> list[LiveDelta]:
        """What is new to a reader that has `seen` so many chunks and characters of each stream;
        `seen` is moved on."""
        deltas = []
        for key, stream in self._streams.items():
            count, offset = seen.get(key, _NOTHING)
            if count < len(stream.chunks):
                kind, number, attempt, call_id = key
                end = stream.end_of_piece(count, offset)
                content = "".join(stream.chunks[count:end])
                seen[key] = (end, offset + len(content))
                deltas.append(
                    LiveDelta(kind, self.run_id, content, offset, number, attempt, call_id)
                )
        return deltas

    def lengths(self) -> dict[StreamKey, int]:
        """The open streams, and how many characters each has so far."""
        return {key: stream.length for key, stream in self._streams.items()}

    def seen_by(self, lengths: Mapping[StreamKey, int]) -> dict[StreamKey, tuple[int, int]]:
        """For `deltas_since`: where a reader is that has so many characters of each stream, at the
        start of the chunk in which it stopped."""
        seen: dict[StreamKey, tuple[int, int]] = {}
        for key, stream in self._streams.items():
            left, count, offset = lengths.get(key, 0), 0, 0
            while count < len(stream.chunks) and offset + len(stream.chunks[count]) <= left:
                offset += len(stream.chunks[count])
                count += 1
            seen[key] = (count, offset)
        return seen

    def _append(self, key: StreamKey, text: str) -> None:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream()
        stream.chunks.append(text)
        stream.length += len(text)


class MirroredRun(LiveRun):
    """What has arrived here of the text of a run that another instance drives.

    `next_seq` is that of the log as the driver knew it when it sent this: a reader that has read
    further may have read the stored form of it.
    """

    def __init__(self, run_id: str, incarnation: str, epoch: int) -> None:
        super().__init__(run_id)
        self.incarnation = incarnation
        self.epoch = epoch
        self.next_seq = 0

    def is_newer_than(self, epoch: int, next_seq: int) -> bool:
        return (self.epoch, self.next_seq) > (epoch, next_seq)

    def take(self, next_seq: int, pieces: Mapping[StreamKey, tuple[int, str]]) -> bool:
        """Add what is new of these pieces, each with its offset; a stream that is not among them is
        closed. False if something before them is missing."""
        self.next_seq = next_seq
        self._streams = {key: one for key, one in self._streams.items() if key in pieces}
        is_complete = True
        for key, (offset, content) in pieces.items():
            length = self._streams[key].length if key in self._streams else 0
            if offset > length:
                is_complete = False
            elif new := content[length - offset :]:
                self._append(key, new)
        return is_complete
