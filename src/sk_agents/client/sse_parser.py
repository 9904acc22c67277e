"""Server-sent events out of bytes, by the rules of the WHATWG.

Lines end with CR, LF or CRLF. A frame counts once the blank line after it has arrived; what the
stream ends without closing never happened. What frames mean is not known here.
"""

from __future__ import annotations

from typing import NamedTuple

from sk_agents.client.errors import ProtocolError

BOM = b"\xef\xbb\xbf"
MAX_FRAME_BYTES = 64 * 1024 * 1024
# Eleven days; what asks for more is no waiting time.
MAX_RETRY_DIGITS = 9


class Frame(NamedTuple):
    """`id` is the frame's own, `None` if it has none; the stream's is `SseParser.last_id`."""

    event: str
    data: str
    id: str | None = None


class SseParser:
    """Feed it reads in order, cut anywhere.

    `last_id` and `retry` (milliseconds) are the latest the stream has set.
    """

    def __init__(self, *, max_frame: int = MAX_FRAME_BYTES) -> None:
        self.last_id = ""
        self.retry: int | None = None
        self._max_frame = max_frame
        self._opening: bytes | None = b""
        self._ended_with_return = False
        self._line: list[bytes] = []
        self._line_size = 0
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None
        self._size = 0

    def feed(self, read: bytes) -> list[Frame]:
        """The frames that this read completes.

        Raises:
            ProtocolError: one frame is larger than the limit.
        """
        if self._opening is not None:
            read = self._without_bom(read)
        if not read:
            return []
        lines = self._with_plain_newlines(read).split(b"\n")
        unfinished = lines.pop()
        frames = []
        if lines:
            lines[0] = b"".join([*self._line, lines[0]])
            self._line.clear()
            self._line_size = 0
            for line in lines:
                if line:
                    self._take(line)
                elif frame := self._finished():
                    frames.append(frame)
        if unfinished:
            self._line.append(unfinished)
            self._line_size += len(unfinished)
            self._check_size()
        return frames

    def _without_bom(self, read: bytes) -> bytes:
        opening = (self._opening or b"") + read
        if len(opening) < len(BOM) and BOM.startswith(opening):
            self._opening = opening
            return b""
        self._opening = None
        return opening.removeprefix(BOM)

    def _with_plain_newlines(self, read: bytes) -> bytes:
        """A return ends its line at once; a newline that follows belongs to it."""
        if self._ended_with_return and read.startswith(b"\n"):
            read = read[1:]
            self._ended_with_return = False
        if read:
            self._ended_with_return = read.endswith(b"\r")
        return read.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in read else read

    def _take(self, line: bytes) -> None:
        self._size += len(line)
        self._check_size()
        name, _, rest = line.partition(b":")
        value = rest.removeprefix(b" ").decode(errors="replace")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id" and "\0" not in value:
            self._id = value
        elif name == b"retry" and value.isascii() and value.isdigit():
            if len(value) <= MAX_RETRY_DIGITS:
                self.retry = int(value)

    def _finished(self) -> Frame | None:
        if self._id is not None:
            self.last_id = self._id
        frame = None
        if self._data:
            frame = Frame(self._event or "message", "\n".join(self._data), self._id)
        self._clear()
        return frame

    def _clear(self) -> None:
        self._event = ""
        self._data = []
        self._id = None
        self._size = 0

    def _check_size(self) -> None:
        if self._size + self._line_size > self._max_frame:
            raise ProtocolError(f"one frame is larger than {self._max_frame} bytes")
