from __future__ import annotations

import base64

import pytest

from sk_agents.engine.ports import Store, ThreadPage, ThreadQuery
from sk_agents.exceptions import InvalidCursor
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import USER, append, create, start_run, thought
from sk_agents.testing.store_contract.case import StoreCases, every_thread


def ids(page: ThreadPage) -> list[str]:
    return [thread.thread_id for thread in page.threads]


async def made(store: Store, clock: SettableClock, count: int) -> list[str]:
    """Threads made one second apart, the latest first."""
    names = [f"t{number:02}" for number in range(count)]
    for name in names:
        await store.commit(create(name))
        clock.advance(1)
    return names[::-1]


class ListingCases(StoreCases):
    """A user's threads are listed in pages, the most recently changed first."""

    async def test_empty_store_lists_nothing(self, store: Store) -> None:
        assert await store.threads(ThreadQuery(USER)) == ThreadPage(())

    async def test_most_recently_changed_comes_first(
        self, store: Store, clock: SettableClock
    ) -> None:
        names = await made(store, clock, 4)
        assert ids(await store.threads(ThreadQuery(USER))) == names
        oldest = await store.thread(names[-1])
        await store.commit(append(oldest, thought()))
        assert ids(await store.threads(ThreadQuery(USER))) == [names[-1], *names[:-1]]

    async def test_listed_heads_are_whole(self, store: Store) -> None:
        committed = await store.commit(start_run("t", owner="o"))
        assert (await store.threads(ThreadQuery(USER))).threads == (committed.thread,)

    @pytest.mark.parametrize("limit", [1, 2, 7, 11, 12, 50])
    async def test_pages_continue_without_gap_or_repetition(
        self, store: Store, clock: SettableClock, limit: int
    ) -> None:
        names = await made(store, clock, 11)
        threads = await every_thread(store, ThreadQuery(USER, limit=limit))
        assert [thread.thread_id for thread in threads] == names

    async def test_last_page_says_that_it_is_the_last(
        self, store: Store, clock: SettableClock
    ) -> None:
        await made(store, clock, 4)
        first = await store.threads(ThreadQuery(USER, limit=2))
        second = await store.threads(ThreadQuery(USER, limit=2, after=first.after))
        assert first.after is not None
        assert (len(second.threads), second.after) == (2, None)

    async def test_threads_changed_at_the_same_time_are_all_listed(self, store: Store) -> None:
        names = {f"t{number}" for number in range(9)}
        for name in names:
            await store.commit(create(name))
        threads = await every_thread(store, ThreadQuery(USER, limit=2))
        assert len(threads) == 9
        assert {thread.thread_id for thread in threads} == names

    async def test_thread_made_between_two_pages_disturbs_neither(
        self, store: Store, clock: SettableClock
    ) -> None:
        names = await made(store, clock, 4)
        first = await store.threads(ThreadQuery(USER, limit=2))
        await store.commit(create("late"))
        second = await store.threads(ThreadQuery(USER, limit=2, after=first.after))
        assert ids(first) + ids(second) == names

    async def test_foreign_threads_are_never_listed(
        self, store: Store, clock: SettableClock
    ) -> None:
        for number in range(3):
            await store.commit(create(f"of-bob-{number}", user="bob"))
        await store.commit(create("of-ann", user="ann"))
        assert ids(await store.threads(ThreadQuery("ann"))) == ["of-ann"]
        assert ids(await store.threads(ThreadQuery("Ann"))) == []
        assert ids(await store.threads(ThreadQuery(""))) == []
        assert ids(await store.threads(ThreadQuery("%"))) == []

    async def test_cursor_of_another_user_shows_only_ones_own(
        self, store: Store, clock: SettableClock
    ) -> None:
        for number in range(3):
            for user in ("ann", "bob"):
                await store.commit(create(f"{user}-{number}", user=user))
                clock.advance(1)
        foreign = (await store.threads(ThreadQuery("bob", limit=1))).after
        page = await store.threads(ThreadQuery("ann", after=foreign))
        assert {thread.user_id for thread in page.threads} == {"ann"}

    @pytest.mark.parametrize(
        "nonsense",
        [
            "nonsense",
            "",
            "%%%",
            "é",
            "a" * 5000,
            *(
                base64.urlsafe_b64encode(text).decode()
                for text in (b"\xff\xfe", b"2030-01-01", b"2030-01-01T00:00:00 t", b"0 0")
            ),
        ],
    )
    async def test_nonsense_cursor_is_refused(
        self, store: Store, clock: SettableClock, nonsense: str
    ) -> None:
        await made(store, clock, 2)
        with pytest.raises(InvalidCursor):
            await store.threads(ThreadQuery(USER, after=nonsense))

    async def test_surface_and_session_narrow_the_list(self, store: Store) -> None:
        for surface in ("chats", "tasks"):
            for session in ("s1", "s2"):
                name = f"{surface}-{session}"
                await store.commit(create(name, surface=surface, session=session))
        by_surface = await store.threads(ThreadQuery(USER, surface="chats"))
        assert set(ids(by_surface)) == {"chats-s1", "chats-s2"}
        by_session = await store.threads(ThreadQuery(USER, session_id="s2"))
        assert set(ids(by_session)) == {"chats-s2", "tasks-s2"}
        by_both = await store.threads(ThreadQuery(USER, surface="tasks", session_id="s1"))
        assert ids(by_both) == ["tasks-s1"]
        assert ids(await store.threads(ThreadQuery(USER, surface="Chats"))) == []

    async def test_filters_hold_over_all_pages(self, store: Store, clock: SettableClock) -> None:
        for number in range(10):
            surface = "chats" if number % 2 else "tasks"
            await store.commit(create(f"t{number}", surface=surface))
            clock.advance(1)
        threads = await every_thread(store, ThreadQuery(USER, surface="chats", limit=2))
        assert [thread.thread_id for thread in threads] == ["t9", "t7", "t5", "t3", "t1"]
