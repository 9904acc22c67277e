"""A chat's log as a stream of frames, from any place on, to its end or early but never silently."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Self

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sk_agents.chats.desk import Visit
from sk_agents.chats.render import Renderer, stream_end
from sk_agents.engine.events import RunEnded
from sk_agents.engine.live import Delta
from sk_agents.engine.state import Run
from sk_agents.engine.threads import KnownThread
from sk_agents.engine.transitions import TERMINAL
from sk_agents.exceptions import CursorAhead, MalformedRequest, TealError, ThreadNotFound
from sk_agents.http.sse import DirectLine, EventStream, LastFrames
from sk_agents.http.streams import StreamSlots

logger = logging.getLogger(__name__)

MAX_CURSOR_DIGITS = 18
PAGE = 1000
_ACCEPTED = ("text/event-stream", "text/*", "*/*")


def check_accept(scope: Scope) -> None:
    """Raises HTTPException: the client says that it cannot read a stream of events."""
    given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
    kinds = [kind.partition(";")[0].strip().lower() for kind in ",".join(given).split(",")]
    if given and not any(kind in _ACCEPTED for kind in kinds):
        raise HTTPException(406, "This answers with a stream of type text/event-stream.")


class Previews:
    """Sends what is not stored yet at once, past the frames, while the stream's `line` is open."""

    __slots__ = ("_renderer", "line")

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self.line = DirectLine()

    @property
    def is_open(self) -> bool:
        return self.line.is_open

    def take(self, previews: Sequence[Delta]) -> None:
        self.line.write(b"".join(self._renderer.frames(previews)))


class ChatFrames:
    """What follows `after`; a stream that cannot go on says why and where to resume.

    What goes out by `previews` is not among it.
    """

    def __init__(
        self,
        visit: Visit,
        renderer: Renderer,
        *,
        after: int,
        run_id: str | None,
        previews: Previews,
    ) -> None:
        self._visit = visit
        self._renderer = renderer
        self._run_id = run_id
        self._watch = visit.engine.watch(
            visit.thread_id, after=after, run_id=run_id, outlet=previews
        )
        self._has_ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        if self._has_ended:
            raise StopAsyncIteration
        try:
            while True:
                items = await anext(self._watch)
                found = self._renderer.frames(items)
                if self._run_id is not None and isinstance(items[-1], RunEnded):
                    return LastFrames(found)
                if found:
                    return found
        except ThreadNotFound:
            return self._ended_by("deleted")
        except TealError as error:
            logger.info("a stream ends early", extra={"reason": error.code})
            return self._ended_by(error.code)

    async def aclose(self) -> None:
        await self._watch.aclose()

    def _ended_by(self, reason: str) -> LastFrames:
        self._has_ended = True
        path = "/events" if self._run_id is None else f"/interactions/{self._run_id}/events"
        return LastFrames([stream_end(reason, self._visit.address(path))])


def live_stream(
    visit: Visit, renderer: Renderer, *, after: int, run_id: str | None = None
) -> EventStream:
    """The response that sends what follows `after`."""
    previews = Previews(renderer)
    frames = ChatFrames(visit, renderer, after=after, run_id=run_id, previews=previews)
    return EventStream(frames, line=previews.line)


class HeldStream(Response):
    """Sends a stream while it holds one of the user's slots.

    Raises LimitExceeded when it is to be sent and the user has no slot left; nothing is sent then.
    """

    def __init__(self, slots: StreamSlots, user_id: str, stream: EventStream) -> None:
        super().__init__()
        self._slots = slots
        self._user_id = user_id
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slots.held(self._user_id):
            await self._stream(scope, receive, send)


async def renderer_at(
    visit: Visit, known: KnownThread, position: int, *, whole_chat: bool = False
) -> Renderer:
    """A renderer for a stream that begins after `position`."""
    renderer = Renderer(visit.chat_id, whole_chat=whole_chat)
    begun = [
        run.first_seq
        for run in known.state.runs.values()
        if run.calls and run.first_seq <= position and not has_seen_its_end(run, position)
    ]
    seq = min(begun, default=position + 1) - 1
    while seq < position:
        page = await visit.engine.shelf.events(known.head, seq, min(PAGE, position - seq))
        if not page:
            break
        renderer.learn([event for event in page if event.seq <= position])
        seq = page[-1].seq
    return renderer


def cursor(headers: Sequence[tuple[bytes, bytes]], after: Sequence[str]) -> int | None:
    """Where the reader wants to go on, from `Last-Event-ID` or `after`; an empty one is the start.

    Raises:
        MalformedRequest: both are given and differ, or one is not an event's id.
        CursorAhead: no log comes that far.
    """
    sent = [value.decode("latin-1") for name, value in headers if name == b"last-event-id"]
    given = [*sent, *after]
    places = [value for value in given if value != ""]
    if any(not (value.isascii() and value.isdigit()) for value in places):
        raise MalformedRequest("An event id is a number.")
    if any(len(value) > MAX_CURSOR_DIGITS for value in places):
        raise CursorAhead
    numbers = {int(value) for value in places}
    if len(numbers) > 1:
        raise MalformedRequest("Last-Event-ID and after name different events.")
    if numbers:
        return numbers.pop()
    return 0 if given else None


def check_cursor(position: int | None, next_seq: int) -> None:
    """Raises CursorAhead: the log has not come that far."""
    if position is not None and position >= next_seq:
        raise CursorAhead


def has_seen_its_end(run: Run, position: int | None) -> bool:
    """Whether a reader who has read as far as `position` has seen the run end."""
    return run.phase in TERMINAL and position is not None and position >= run.last_seq
