"""A chat's log as a stream of frames, from any place on, to its end or early but never silently."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import aclosing

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sk_agents.chats.desk import Visit
from sk_agents.chats.render import Renderer, stream_end
from sk_agents.engine.events import RunEnded
from sk_agents.engine.state import Run, ThreadState
from sk_agents.engine.transitions import TERMINAL
from sk_agents.exceptions import CursorAhead, MalformedRequest, TealError, ThreadNotFound
from sk_agents.http.sse import EventStream, Frames, LastFrames
from sk_agents.http.streams import StreamSlots

logger = logging.getLogger(__name__)

MAX_CURSOR_DIGITS = 18
PAGE = 1000
_ACCEPTED = ("text/event-stream", "text/*", "*/*")


class HeldStream(Response):
    """Sends frames while it holds one of the user's slots.

    Raises LimitExceeded when it is to be sent and the user has no slot left; nothing is sent then.
    """

    def __init__(self, slots: StreamSlots, user_id: str, frames: Frames) -> None:
        super().__init__()
        self._slots = slots
        self._user_id = user_id
        self._stream = EventStream(frames)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slots.held(self._user_id):
            await self._stream(scope, receive, send)


def check_accept(scope: Scope) -> None:
    """Raises HTTPException: the client says that it cannot read a stream of events."""
    given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
    kinds = [kind.partition(";")[0].strip().lower() for kind in ",".join(given).split(",")]
    if given and not any(kind in _ACCEPTED for kind in kinds):
        raise HTTPException(406, "This answers with a stream of type text/event-stream.")


async def frames(
    visit: Visit, renderer: Renderer, *, after: int, run_id: str | None = None
) -> Frames:
    """What follows `after`; a stream that cannot go on says why and where to resume."""
    path = "/events" if run_id is None else f"/interactions/{run_id}/events"
    resume_url = visit.address(path)
    watching = visit.engine.watch(visit.thread_id, after=after, run_id=run_id)
    async with aclosing(watching) as watched:
        try:
            async for items in watched:
                found = renderer.frames(items)
                if run_id is not None and isinstance(items[-1], RunEnded):
                    yield LastFrames(found)
                elif found:
                    yield found
        except ThreadNotFound:
            yield [stream_end("deleted", resume_url)]
        except TealError as error:
            logger.info("a stream ends early", extra={"reason": error.code})
            yield [stream_end(error.code, resume_url)]


async def renderer_at(
    visit: Visit, state: ThreadState, position: int, *, whole_chat: bool = False
) -> Renderer:
    """A renderer for a stream that begins after `position`."""
    renderer = Renderer(visit.chat_id, whole_chat=whole_chat)
    begun = [
        run.first_seq
        for run in state.runs.values()
        if run.calls and run.first_seq <= position and not has_seen_its_end(run, position)
    ]
    seq = min(begun, default=position + 1) - 1
    while seq < position:
        page = await visit.engine.shelf.events(visit.thread_id, seq, min(PAGE, position - seq))
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
