from __future__ import annotations

import pytest

from sk_agents.engine.models import Thread
from sk_agents.engine.ports import Store
from sk_agents.exceptions import ThreadNotFound
from sk_agents.testing.commits import append, create, start_run, thought
from sk_agents.testing.store_contract.case import StoreCases, every_event

SIZES = (1, 3, 1, 5, 2, 1)


async def written(store: Store) -> Thread:
    """A log of commits that hold one event or several."""
    head = (await store.commit(create("t"))).thread
    for size in SIZES:
        events = [thought(str(head.next_seq + n)) for n in range(size)]
        head = (await store.commit(append(head, *events))).thread
    return head


class ReadingCases(StoreCases):
    """A log is read from any point on, in pages, without gaps."""

    async def test_every_offset_and_page_size_gives_the_same_log(self, store: Store) -> None:
        await written(store)
        log = await store.events_after("t", 0)
        assert [event.seq for event in log] == list(range(1, sum(SIZES) + 1))
        for offset in range(sum(SIZES) + 1):
            for limit in (1, 2, 3, 4, 100):
                page = await store.events_after("t", offset, limit)
                assert list(page) == list(log[offset : offset + limit])

    async def test_a_page_bounded_in_bytes_has_at_least_one_event_and_skips_none(
        self, store: Store
    ) -> None:
        await written(store)
        log = await store.events_after("t", 0)
        for offset in range(sum(SIZES)):
            for room in (1, 300, 1_000, 10**9):
                page = await store.events_after("t", offset, max_bytes=room)
                assert page and list(page) == list(log[offset : offset + len(page)])

    async def test_a_page_bounded_in_bytes_reads_little_of_a_large_log(self, store: Store) -> None:
        head = (await store.commit(create("t"))).thread
        for _ in range(10):
            head = (await store.commit(append(head, thought("x" * 10_000)))).thread
        page = await store.events_after("t", 0, max_bytes=25_000)
        assert 1 <= len(page) <= 4

    async def test_reading_one_by_one_gives_the_whole_log(self, store: Store) -> None:
        await written(store)
        assert await every_event(store, "t", page=1) == list(await store.events_after("t", 0))

    async def test_beyond_the_end_is_empty(self, store: Store) -> None:
        head = await written(store)
        for seq in (head.next_seq - 1, head.next_seq, 10**6, 2**62):
            assert list(await store.events_after("t", seq)) == []

    async def test_negative_seq_reads_from_the_start(self, store: Store) -> None:
        await written(store)
        for seq in (-1, -(2**62)):
            assert [event.seq for event in await store.events_after("t", seq, 2)] == [1, 2]

    async def test_log_of_an_unknown_thread_is_not_found(self, store: Store) -> None:
        for seq in (0, 5, -1):
            with pytest.raises(ThreadNotFound):
                await store.events_after("nothing", seq)

    async def test_log_of_an_empty_thread_is_empty(self, store: Store) -> None:
        await store.commit(create("t"))
        assert list(await store.events_after("t", 0)) == []

    async def test_earlier_events_stay_as_they_were(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        seen = await every_event(store, "t")
        for number in range(10):
            head = (await store.commit(append(head, thought(str(number))))).thread
            log = await every_event(store, "t")
            assert log[: len(seen)] == seen
            assert len(log) == len(seen) + 1
            seen = log

    async def test_reading_changes_nothing(self, store: Store) -> None:
        head = await written(store)
        await every_event(store, "t")
        await store.orphans()
        assert await store.thread("t") == head

    async def test_heads_of_many_threads_come_in_one_read(self, store: Store) -> None:
        heads = [(await store.commit(start_run(f"t{n}", f"run-{n}"))).thread for n in range(20)]
        heads[3] = (await store.commit(append(heads[3], thought()))).thread
        found = await store.heads([head.thread_id for head in heads[:12]])
        assert {head.thread_id: head for head in found} == {
            head.thread_id: head for head in heads[:12]
        }
        assert len(found) == 12

    async def test_heads_leave_out_what_does_not_exist(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        gone = (await store.commit(start_run("gone", "run-2"))).thread
        await store.delete("gone", next_seq=gone.next_seq)
        assert list(await store.heads(["nothing", "t", "gone", "", "t", "é/🧭"])) == [head]

    async def test_heads_of_no_threads_are_none(self, store: Store) -> None:
        await store.commit(start_run("t"))
        assert list(await store.heads([])) == []

    async def test_heads_show_who_has_claimed_a_thread(self, store: Store) -> None:
        await store.commit(start_run("t", owner="o"))
        claimed = await store.claim("t", "p")
        assert list(await store.heads(["t"])) == [claimed]
