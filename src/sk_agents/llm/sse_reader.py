"""Server-sent events, cut out of whatever the network delivers.

Only `data` matters to a model's stream: names, ids and comments are skipped. One call handles one
network read, however many events it holds, because the cost per event is what a fast model feels.
"""

from __future__ import annotations

from sk_agents.exceptions import ModelProtocolError

MAX_EVENT_BYTES = 8 * 1024 * 1024
# As numbers: looking for a byte is four times as fast as looking for bytes.
RETURN, NEWLINE = b"\r\n"


class SseReader:
    """Feed it reads in order; it keeps only the event that is not yet complete."""

    def __init__(self, max_event: int = MAX_EVENT_BYTES) -> None:
        self._max_event = max_event
        self._tail = bytearray()
        self._searched = 0
        self._held_return = False

    def feed(self, read: bytes) -> list[bytes]:
        """The data of every event that this read completes.

        Raises:
            ModelProtocolError: one event is larger than the limit.
        """
        if RETURN in read or self._held_return:
            read = self._with_plain_newlines(read)
        if self._tail:
            complete = self._completed(read)
        else:
            complete, _, rest = read.rpartition(b"\n\n")
            self._keep(rest)
        return _data_of(complete) if complete else []

    def end(self) -> list[bytes]:
        """The data of a last event that the stream ended without closing."""
        tail = bytes(self._tail)
        self._tail.clear()
        return _data_of(tail.rstrip(b"\n"))

    def _completed(self, read: bytes) -> bytes:
        self._tail += read
        # The two newlines may have been cut apart, hence one byte back.
        end = self._tail.rfind(b"\n\n", max(0, self._searched - 1))
        if end < 0:
            self._keep(b"")
            return b""
        complete = bytes(self._tail[:end])
        rest = bytes(self._tail[end + 2 :])
        self._tail.clear()
        self._keep(rest)
        return complete

    def _keep(self, rest: bytes) -> None:
        self._tail += rest
        self._searched = len(self._tail)
        if self._searched > self._max_event:
            raise ModelProtocolError(f"one event is larger than {self._max_event} bytes")

    def _with_plain_newlines(self, read: bytes) -> bytes:
        """A return at the very end may be half of a line end, so it waits for the next read."""
        if self._held_return:
            read = b"\r" + read
        self._held_return = read.endswith(b"\r")
        if self._held_return:
            read = read[:-1]
        return read.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data_of(text: bytes) -> list[bytes]:
    if text.startswith(b"data: "):
        found = text[6:].split(b"\n\ndata: ")
        if NEWLINE not in b"".join(found):
            # Nothing but events of one line of data each, as nearly always.
            return found
    found = []
    for event in text.split(b"\n\n"):
        if event.startswith(b"data: ") and b"\n" not in event:
            found.append(event[6:])
        elif event:
            found.extend(_data_of_lines(event))
    return found


def _data_of_lines(event: bytes) -> list[bytes]:
    """Events of several lines; a line without a colon or with another name carries no data."""
    lines = [
        line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")
    ]
    return [b"\n".join(lines)] if lines else []
