"""A user's threads out of SQLite, newest first, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from sk_agents.engine.models import Thread
from sk_agents.engine.ports import ThreadPage, ThreadQuery
from sk_agents.exceptions import SchemaTooNew, StateCorrupt
from sk_agents.persistence.listing import page_of, says
from sk_agents.persistence.sqlite.rows import events_after, readable_heads


def list_threads(db: apsw.Connection, query: ThreadQuery) -> ThreadPage:
    return page_of((thread for thread in _of_user(db, query) if _matches(db, thread, query)), query)


def _of_user(db: apsw.Connection, query: ThreadQuery) -> Iterator[Thread]:
    """A damaged head is left out: it can be named, not shown."""
    where, values = ("", ()) if query.surface is None else (" AND surface = ?", (query.surface,))
    return readable_heads(
        db.execute(
            f"SELECT thread_id, head, checksum FROM thread WHERE user_id = ?{where}",
            (query.user_id, *values),
        )
    )


def _matches(db: apsw.Connection, thread: Thread, query: ThreadQuery) -> bool:
    if query.text is None:
        return True
    try:
        return says(thread, events_after(db, thread.thread_id, 0, thread.next_seq), query.text)
    except (StateCorrupt, SchemaTooNew):
        return False
