"""What all cases share: the clock, the open store, and a picture of everything in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from sk_agents.engine.events import Event
from sk_agents.engine.log.commits import Commit
from sk_agents.engine.models import Entry, EntryKind, Thread
from sk_agents.engine.ports import Clock, Store, ThreadQuery
from sk_agents.exceptions import TealError, ThreadNotFound
from sk_agents.testing.commits import USER
from sk_agents.testing.predictable import SettableClock

MakeStore = Callable[[Clock], Store]

KINDS: tuple[EntryKind, ...] = ("run", "approval", "grant", "review", "rating")


class StoreCases:
    """The fixtures of all cases. Each test has a store of its own, empty and open."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def clock(self) -> SettableClock:
        return SettableClock()

    @pytest_asyncio.fixture
    async def store(self, make_store: MakeStore, clock: SettableClock) -> AsyncIterator[Store]:
        async with make_store(clock) as store:
            yield store


async def every_event(store: Store, thread_id: str, page: int = 500) -> list[Event]:
    """The whole log, read page by page."""
    events: list[Event] = []
    while found := await store.events_after(thread_id, len(events), page):
        events.extend(found)
    return events


async def every_thread(store: Store, query: ThreadQuery) -> list[Thread]:
    """All pages of a listing."""
    page = await store.threads(query)
    threads = list(page.threads)
    while page.after is not None:
        page = await store.threads(replace(query, after=page.after))
        threads.extend(page.threads)
    return threads


async def snapshot(store: Store, *thread_ids: str, user: str = USER) -> dict[str, Any]:
    """All that can be read about these threads and their user, to compare before and after."""
    seen: dict[str, Any] = {}
    for thread_id in thread_ids:
        try:
            seen[thread_id] = (await store.thread(thread_id), await every_event(store, thread_id))
        except ThreadNotFound:
            seen[thread_id] = None
    entries: list[Entry] = []
    for kind in KINDS:
        entries.extend(await store.open_entries(kind, user))
        entries.extend(await store.overdue(kind))
    seen["entries"] = entries
    seen["listed"] = (await store.threads(ThreadQuery(user))).threads
    seen["orphans"] = list(await store.orphans())
    return seen


async def refused(store: Store, commit: Commit, error: type[TealError]) -> TealError:
    """The error of a commit that must fail without a trace."""
    before = await snapshot(store, commit.thread_id)
    with pytest.raises(error) as raised:
        await store.commit(commit)
    assert raised.type is error
    assert await snapshot(store, commit.thread_id) == before
    return raised.value
