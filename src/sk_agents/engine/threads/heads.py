"""The heads of all threads of a store, whoever they belong to: for operators, never for users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from sk_agents.engine.models import SERVER_LOG, Thread
from sk_agents.engine.ports import ListedStore, Store

PAGE = 500


async def heads_since(store: Store, since: datetime | None) -> AsyncIterator[Sequence[Thread]]:
    """Of the threads that were changed at `since` or later, without the server's own log; none of
    a store that cannot list its threads."""
    if not isinstance(store, ListedStore):
        return
    ids: Sequence[str] = [""]
    while ids := await store.all_threads(after=ids[-1], limit=PAGE):
        heads = [
            head
            for head in await store.heads(ids)
            if (since is None or head.updated_at >= since)
            and not head.thread_id.startswith(SERVER_LOG)
        ]
        if heads:
            yield heads
