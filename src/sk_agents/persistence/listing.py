"""Pages of threads and entries for stores that sort in Python, and the cursor all stores share."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sk_agents.engine.events import (
    Answered,
    Cancelled,
    Event,
    Imported,
    RunQueued,
    RunStarted,
    Steered,
    Thinking,
)
from sk_agents.engine.models import Entry, EntryKind, Thread
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
        and carries(thread, query.labels)
    ]
    chosen.sort(key=_place, reverse=True)
    page = tuple(chosen[: query.limit])
    return ThreadPage(page, cursor(page[-1]) if page and len(chosen) > len(page) else None)


def longest_untouched(threads: Iterable[Thread], limit: int) -> list[Thread]:
    return sorted(threads, key=_place)[:limit]


def open_page(
    entries: Iterable[Entry], kind: EntryKind, user_id: str, after: str | None, limit: int
) -> list[Entry]:
    """The user's open entries of this kind after the key `after`, by key."""
    chosen = [
        entry
        for entry in entries
        if (entry.kind, entry.open, entry.user_id) == (kind, True, user_id)
        and (after is None or entry.key > after)
    ]
    return sorted(chosen, key=lambda entry: entry.key)[:limit]


def overdue_page(
    entries: Iterable[Entry], kind: EntryKind, now: datetime, limit: int
) -> list[Entry]:
    """Open entries of this kind whose time is up, the most overdue first."""
    late = [
        (entry.due_at, entry.key, entry)
        for entry in entries
        if entry.kind == kind and entry.open and entry.due_at is not None and entry.due_at <= now
    ]
    return [entry for _, _, entry in sorted(late, key=lambda row: row[:2])[:limit]]


def cursor(last: Thread) -> str:
    place = f"{last.updated_at.isoformat()} {last.thread_id}"
    return base64.urlsafe_b64encode(place.encode()).decode()


def read_cursor(text: str | None) -> tuple[datetime, str] | None:
    """The place after which a listing goes on; none is from the top.

    Raises:
        InvalidCursor: no store gave it out. To begin again would look like more of the same.
    """
    if text is None:
        return None
    try:
        decoded = base64.b64decode(text.encode(), b"-_", validate=True).decode()
        at, _, thread_id = decoded.partition(" ")
        place = datetime.fromisoformat(at)
    except (ValueError, binascii.Error):
        raise InvalidCursor from None
    if place.tzinfo is None or not thread_id:
        raise InvalidCursor
    return place, thread_id


def carries(thread: Thread, labels: Mapping[str, Any]) -> bool:
    """Whether its metadata is as `ThreadQuery.labels` says."""
    return all(thread.metadata.get(name) == value for name, value in labels.items())


def mentions(thread: Thread, events: Iterable[Event], text: str) -> bool:
    """Whether the title or anything said contains `text`, whatever its case."""
    wanted = text.casefold()
    if wanted in str(thread.metadata.get("title", "")).casefold():
        return True
    return any(wanted in spoken.casefold() for event in events for spoken in _texts(event))


def _texts(event: Event) -> Iterable[str]:
    match event:
        case RunStarted(message=message) | RunQueued(message=message) if message is not None:
            return [message.text]
        case Answered() | Steered() | Thinking(spoken=True):
            return [event.content]
        case Cancelled(partial=str() as partial):
            return [partial]
        case Imported():
            return [item.content for item in event.items if item.content_type == "text"]
        case _:
            return []


def _place(thread: Thread) -> tuple[datetime, str]:
    return thread.updated_at, thread.thread_id
