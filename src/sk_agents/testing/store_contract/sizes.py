from __future__ import annotations

from sk_agents.engine.ports import Store
from sk_agents.testing.commits import answered, append, create, start_run, thought
from sk_agents.testing.store_contract.case import StoreCases, every_event

MEGABYTE = 1024 * 1024


class SizeCases(StoreCases):
    """Large texts, large commits and long logs."""

    async def test_megabyte_of_text_reads_back_unchanged(self, store: Store) -> None:
        text = "é" * (MEGABYTE // 2)
        head = (await store.commit(start_run("t", text=text))).thread
        committed = await store.commit(append(head, answered(text)))
        assert (await store.events_after("t", 1)) == list(committed.events)
        assert committed.events[0].model_dump()["content"] == text

    async def test_megabyte_of_metadata_reads_back_unchanged(self, store: Store) -> None:
        await store.commit(create("t", metadata={"note": "n" * MEGABYTE}))
        assert (await store.thread("t")).metadata == {"note": "n" * MEGABYTE}

    async def test_commit_of_three_hundred_events_is_one_commit(self, store: Store) -> None:
        commit = create("t", *(thought(str(number)) for number in range(300)))
        committed = await store.commit(commit)
        assert [event.seq for event in committed.events] == list(range(1, 301))
        assert await every_event(store, "t", page=7) == list(committed.events)
        assert (await store.commit(commit)).events == committed.events

    async def test_log_of_five_thousand_events_is_whole(self, store: Store) -> None:
        head = (await store.commit(create("t"))).thread
        for number in range(50):
            events = [thought(f"{number}.{n}") for n in range(100)]
            head = (await store.commit(append(head, *events))).thread
        log = await every_event(store, "t")
        assert [event.seq for event in log] == list(range(1, 5001))
        assert log[4321].model_dump()["content"] == "43.21"
        assert [event.seq for event in await store.events_after("t", 4990)] == [*range(4991, 5001)]

    async def test_first_page_has_at_most_five_hundred_events(self, store: Store) -> None:
        await store.commit(create("t", *(thought(str(number)) for number in range(600))))
        assert len(await store.events_after("t", 0)) == 500
