"""A chat's log as a stream of frames, from any place on, to its end or early but never silently."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Self

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Scope

from sk_agents.chats.render import ChatRenderer, event_tag, stream_end
from sk_agents.chats.requests import ChatRequest
from sk_agents.engine.events import Beginning, Event, RunEnded
from sk_agents.engine.log.state import Run
from sk_agents.engine.models import TERMINAL
from sk_agents.engine.reading.live import LiveDelta
from sk_agents.engine.threads.known import KnownThread
from sk_agents.exceptions import (
    CursorAhead,
    CursorExpired,
    MalformedRequest,
    TealError,
    ThreadNotFound,
)
from sk_agents.http.sse import EventStream, LastFrames, LiveWriter

logger = logging.getLogger(__name__)

PAGE = 1000
PAGE_BYTES = 1024 * 1024
MAX_DIGITS = 18
_CURSOR = re.compile("([0-9]+)(?:-([0-9a-f]{8}))?")
_ACCEPTED = ("text/event-stream", "text/*", "*/*")


def check_accept(scope: Scope) -> None:
    """Raises HTTPException: the client says that it cannot read a stream of events."""
    given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
    kinds = [kind.partition(";")[0].strip().lower() for kind in ",".join(given).split(",")]
    if given and not any(kind in _ACCEPTED for kind in kinds):
        raise HTTPException(406, "This answers with a stream of type text/event-stream.")


class Previews:
    """Sends what is not stored yet at once, past the frames, while the stream's `live` is open."""

    __slots__ = ("_renderer", "live")

    def __init__(self, renderer: ChatRenderer) -> None:
        self._renderer = renderer
        self.live = LiveWriter()

    @property
    def is_open(self) -> bool:
        return self.live.is_open

    def take(self, previews: Sequence[LiveDelta]) -> None:
        self.live.write(b"".join(self._renderer.frames(previews)))


class ChatFrames:
    """What follows `after`; a stream that cannot go on says why and where to resume.

    What goes out by `previews` is not among it. Before a run is shown that begins, `proven` may
    refuse the reader.
    """

    def __init__(
        self,
        chat: ChatRequest,
        renderer: ChatRenderer,
        *,
        after: int,
        run_id: str | None,
        incarnation: str | None,
        proven: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self.previews = Previews(renderer)
        self._proven = proven
        self._chat = chat
        self._renderer = renderer
        self._run_id = run_id
        self._watch = chat.engine.watch(
            chat.thread_id,
            after=after,
            run_id=run_id,
            incarnation=incarnation,
            outlet=self.previews,
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
                if self._proven is not None and any(isinstance(one, Beginning) for one in items):
                    await self._proven()
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
        return LastFrames([stream_end(reason, self._chat.address(path))])


def live_stream(
    chat: ChatRequest,
    renderer: ChatRenderer,
    *,
    after: int,
    run_id: str | None = None,
    incarnation: str | None = None,
    proven: Callable[[], Awaitable[None]] | None = None,
) -> EventStream:
    """The response that sends what follows `after`; `run_id` and `incarnation` are those of
    `Watch`, `proven` that of `ChatFrames`."""
    frames = ChatFrames(
        chat, renderer, after=after, run_id=run_id, incarnation=incarnation, proven=proven
    )
    return EventStream(frames, live=frames.previews.live)


async def renderer_at(
    chat: ChatRequest,
    known: KnownThread,
    position: int,
    *,
    run_id: str | None = None,
    details: bool = False,
) -> ChatRenderer:
    """A renderer for a stream of one run, or of the whole chat, that begins after `position`.

    With `details` the frames of one run say what those of the whole chat say.
    It learns only of the runs that the stream still has to show. The log between two of their
    events may belong to a run that the reader has seen to its end: a message that was queued while
    a tool ran began before that tool's result, which nothing here must try to render.
    """
    renderer = ChatRenderer(chat.chat_id, whole_chat=details or run_id is None)
    begun = {
        run.run_id: run.first_seq
        for run in known.state.runs.values()
        if run_id in (None, run.run_id)
        and run.calls
        and run.first_seq <= position
        and not has_seen_its_end(run, position)
    }
    seq = min(begun.values(), default=position + 1) - 1
    while seq < position:
        page = await chat.engine.catalog.events(
            known.head, seq, min(PAGE, position - seq), max_bytes=PAGE_BYTES
        )
        if not page:
            break
        renderer.learn([event for event in page if event.run_id in begun])
        seq = page[-1].seq
    return renderer


class Cursor(NamedTuple):
    """After which event a reader goes on; without a `tag`, after whatever stands at `seq`."""

    seq: int
    tag: str | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises:
        MalformedRequest: this is no event's id.
        CursorAhead: no log comes that far.
        """
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise MalformedRequest("An event id is what a stream gave as one, or a number.")
        if len(found[1]) > MAX_DIGITS:
            raise CursorAhead
        return cls(int(found[1]), found[2])

    def names(self, event: Event) -> bool:
        return self.seq == event.seq and self.tag in (None, event_tag(event))


def cursor_of(headers: Sequence[tuple[bytes, bytes]], after: Sequence[str]) -> Cursor | None:
    """Where a reader was, by `Last-Event-ID` or `after`; an empty one is the start.

    Raises:
        MalformedRequest: both are given and differ, or one is not an event's id.
        CursorAhead: no log comes that far.
    """
    sent = [value.decode("latin-1") for name, value in headers if name == b"last-event-id"]
    given = [*sent, *after]
    cursors = {Cursor.of(value) for value in given if value != ""}
    if len(cursors) > 1:
        raise MalformedRequest("Last-Event-ID and after name different events.")
    if cursors:
        return cursors.pop()
    return Cursor(0) if given else None


async def place_of(request: Request, chat: ChatRequest, known: KnownThread) -> int | None:
    """The number of the event after which the reader wants to go on, if it names one.

    Raises:
        MalformedRequest: this cannot be an event's id.
        CursorAhead: the log has not come that far.
        CursorExpired: another event stands where the reader's was.
    """
    cursor = cursor_of(request.scope["headers"], request.query_params.getlist("after"))
    if cursor is None:
        return None
    if cursor.seq >= known.state.next_seq:
        raise CursorAhead
    if cursor.tag is not None:
        page = await chat.engine.catalog.events(known.head, cursor.seq - 1, 1)
        if not page or not cursor.names(page[0]):
            raise CursorExpired
    return cursor.seq


def has_seen_its_end(run: Run, position: int | None) -> bool:
    """Whether a reader who has read as far as `position` has seen the run end."""
    return run.phase in TERMINAL and position is not None and position >= run.last_seq
