"""Pages of threads for stores that list them in Python, and the cursor all stores share."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from datetime import datetime

from sk_agents.engine.events import (
    Answered,
    Event,
    Imported,
    RunQueued,
    RunStarted,
)
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import ThreadPage, ThreadQuery
from sk_agents.exceptions import InvalidCursor


def page_of(threads: Iterable[Thread], query: ThreadQuery) -> ThreadPage:
    """The page of `query` out of all threads; `query.text` is the caller's to apply."""
    start = read_cursor(query.after)
    chosen = [
        thread
        for thread in threads
        if thread.user_id == query.user_id
        and query.surface in (None, thread.surface)
        and query.session_id in (None, thread.session_id)
        and (start is None or _place(thread) < start)
    ]
    chosen.sort(key=_place, reverse=True)
    page = tuple(chosen[: query.limit])
    return ThreadPage(page, cursor(page[-1]) if page and len(chosen) > len(page) else None)


def cursor(last: Thread) -> str:
    place = f"{last.updated_at.isoformat()} {last.thread_id}"
    return base64.urlsafe_b64encode(place.encode()).decode()


def read_cursor(text: str | None) -> tuple[datetime, str] | None:
    """The place after which a listing goes on; none is from the top.

    Raises:
        InvalidCursor: this was never anybody's: to begin anew would look like more of the same.
    """
    if text is None:
        return None
    try:
        at, _, thread_id = (
            base64.b64decode(text.encode(), b"-_", validate=True).decode().partition(" ")
        )
        place = datetime.fromisoformat(at)
    except (ValueError, binascii.Error):
        raise InvalidCursor from None
    if place.tzinfo is None or not thread_id:
        raise InvalidCursor
    return place, thread_id


def says(thread: Thread, events: Iterable[Event], text: str) -> bool:
    """Whether the title or anything said contains `text`, whatever its case."""
    wanted = text.casefold()
    if wanted in str(thread.metadata.get("title", "")).casefold():
        return True
    return any(wanted in spoken.casefold() for event in events for spoken in _texts(event))


def _texts(event: Event) -> Iterable[str]:
    match event:
        case RunStarted(message=message) | RunQueued(message=message) if message is not None:
            return [message.text]
        case Answered():
            return [event.content]
        case Imported():
            return [item.content for item in event.items if item.content_type == "text"]
        case _:
            return []


def _place(thread: Thread) -> tuple[datetime, str]:
    return thread.updated_at, thread.thread_id
