"""What a store keeps when it is closed, and what several handles and processes share."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio

from sk_agents import exceptions as errors
from sk_agents.engine.models import Durability
from sk_agents.engine.ports import Store
from sk_agents.testing.commits import (
    append,
    append_owned,
    approval,
    ask,
    create,
    decide,
    start_run,
    thought,
)
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.store_contract.case import MakeStore, StoreCases, every_event, snapshot
from sk_agents.testing.store_contract.commits import decided_once
from sk_agents.testing.store_contract.contents import BARE, TEXTS, TOO_DEEP, WHOLE
from sk_agents.testing.store_contract.counters import count
from sk_agents.testing.store_contract.threads import read_while_deleting
from sk_agents.testing.store_worker import append_until_stored

OpenStore = Callable[[], Store]
# Damages the stored record of a closed store's thread, which holds one commit; returns how to
# read the damaged bytes.
Damage = Callable[[str], Callable[[], bytes]]


class DurableCases(StoreCases):
    """What a store took before it was closed it has when it is opened again.

    The fixture `damage` gives a function that changes a byte in the stored record of a thread
    whose log is one commit, while no store is open, and returns a function that reads the record's
    bytes.
    """

    @pytest.fixture
    def opened(self, make_store: MakeStore, clock: SettableClock) -> OpenStore:
        return lambda: make_store(clock)

    async def test_store_keeps_more_than_nothing(self, store: Store) -> None:
        assert store.durability is not Durability.D0

    async def test_everything_reads_the_same_after_reopening(self, opened: OpenStore) -> None:
        async with opened() as store:
            head = (await store.commit(start_run("t", owner="o"))).thread
            await store.commit(ask(head, "a", park=True))
            await store.commit(create("u", metadata={"deep": {"n": [1, None]}}))
            before = await snapshot(store, "t", "u")
        async with opened() as store:
            assert await snapshot(store, "t", "u") == before

    async def test_every_event_type_reads_the_same_after_reopening(self, opened: OpenStore) -> None:
        async with opened() as store:
            committed = await store.commit(create("t", *WHOLE, *BARE))
        async with opened() as store:
            assert await every_event(store, "t") == list(committed.events)

    async def test_every_text_reads_the_same_after_reopening(self, opened: OpenStore) -> None:
        async with opened() as store:
            committed = await store.commit(create("t", *map(thought, TEXTS.values())))
        async with opened() as store:
            assert await every_event(store, "t") == list(committed.events)

    async def test_deep_value_does_not_make_the_thread_unreadable(self, opened: OpenStore) -> None:
        from_model = WHOLE[4].model_copy(update={"arguments": TOO_DEEP})
        async with opened() as store:
            head = (await store.commit(start_run("t"))).thread
            with pytest.raises(errors.InvalidInput):
                await store.commit(append(head, from_model))
        async with opened() as store:
            assert len(await every_event(store, "t")) == 1

    async def test_commit_is_recognised_after_reopening(self, opened: OpenStore) -> None:
        commit = create("t", *WHOLE)
        async with opened() as store:
            first = await store.commit(commit)
        async with opened() as store:
            assert (await store.commit(commit)).events == first.events
            with pytest.raises(errors.CommitReused):
                await store.commit(replace(commit, events=(thought("other"),)))
            assert len(await every_event(store, "t")) == len(WHOLE)

    async def test_stale_owner_is_fenced_after_reopening(self, opened: OpenStore) -> None:
        async with opened() as store:
            old = (await store.commit(start_run("t", owner="o"))).thread
            new = await store.claim("t", "p")
        async with opened() as store:
            with pytest.raises(errors.LeaseLost):
                await store.commit(append_owned(old, thought()))
            await store.commit(append_owned(new, thought()))

    async def test_decision_stands_after_reopening(self, opened: OpenStore) -> None:
        async with opened() as store:
            head = (await store.commit(start_run("t"))).thread
            await store.commit(ask(head, "a", park=True))
            await store.commit(decide("t", "a", "rejected"))
        async with opened() as store:
            with pytest.raises(errors.ApprovalAlreadyDecided):
                await store.commit(decide("t", "a"))

    async def test_deleted_thread_stays_deleted_after_reopening(self, opened: OpenStore) -> None:
        async with opened() as store:
            head = (await store.commit(start_run("t"))).thread
            await store.delete("t", next_seq=head.next_seq)
        async with opened() as store:
            with pytest.raises(errors.ThreadNotFound):
                await store.thread("t")
            assert await store.find("run", "run-1") is None

    async def test_log_goes_on_without_a_gap_after_reopening(self, opened: OpenStore) -> None:
        async with opened() as store:
            await store.commit(start_run("t"))
        for number in range(5):
            async with opened() as store:
                head = await store.thread("t")
                await store.commit(append(head, thought(str(number))))
        async with opened() as store:
            assert [event.seq for event in await every_event(store, "t")] == [1, 2, 3, 4, 5, 6]

    async def test_counters_go_on_after_reopening(
        self, opened: OpenStore, clock: SettableClock
    ) -> None:
        async with opened() as store:
            await store.count([count("k", 3, ttl=60), count("l", 1, ttl=10)])
        clock.advance(10)
        async with opened() as store:
            assert list(await store.count([count("k", 2, 5), count("l", 1)])) == [5, 1]
            clock.advance(50)
            assert dict(await store.sums("")) == {"l": 1}

    async def test_damaged_record_is_an_error_of_its_own_thread(
        self, opened: OpenStore, damage: Damage
    ) -> None:
        async with opened() as store:
            await store.commit(start_run("damaged", "run-1"))
            await store.commit(start_run("whole", "run-2"))
        read_bytes = damage("damaged")
        before = read_bytes()
        async with opened() as store:
            with pytest.raises(errors.StateCorrupt):
                await every_event(store, "damaged")
            head = await store.thread("whole")
            assert head in await store.heads(["damaged", "whole"])
            await store.commit(append(head, thought()))
            assert len(await every_event(store, "whole")) == 2
            await store.commit(start_run("new", "run-3"))
        assert read_bytes() == before

    async def test_damaged_record_stays_an_error_when_read_again(
        self, opened: OpenStore, damage: Damage
    ) -> None:
        async with opened() as store:
            await store.commit(start_run("damaged"))
        damage("damaged")
        for _ in range(2):
            async with opened() as store:
                for _ in range(2):
                    with pytest.raises(errors.StateCorrupt):
                        await every_event(store, "damaged")


PROCESSES = 4
APPROVALS = 200
APPENDS = 25
COUNTED = 400


async def run_workers(*arguments: str) -> list[int]:
    """The counts that as many processes report, all started before any of them begins."""
    command = [sys.executable, "-m", "sk_agents.testing.store_worker", *arguments]
    workers = [
        await asyncio.create_subprocess_exec(*command, str(number), stdin=PIPE, stdout=PIPE)
        for number in range(PROCESSES)
    ]
    try:
        async with asyncio.timeout(100):
            for worker in workers:
                assert worker.stdout is not None
                assert await worker.stdout.readline() == b"ready\n"
            reports = await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))
            assert [worker.returncode for worker in workers] == [0] * PROCESSES
            return [int(output) for output, _ in reports]
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()


class SharedCases(StoreCases):
    """Several handles and processes use one store at once.

    The fixture `store_url` names the store of `make_store` for other processes.
    """

    @pytest_asyncio.fixture
    async def other(self, make_store: MakeStore, clock: SettableClock) -> AsyncIterator[Store]:
        async with make_store(clock) as store:
            yield store

    @pytest.fixture
    def both(self, store: Store, other: Store) -> Sequence[Store]:
        return [store, other]

    async def test_commit_through_one_handle_is_seen_through_the_other(
        self, store: Store, other: Store
    ) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        assert await other.thread("t") == head
        await other.commit(append_owned(head, thought()))
        assert await every_event(store, "t") == await every_event(other, "t")
        assert await other.find("run", "run-1") == await store.find("run", "run-1")

    async def test_heads_show_what_was_committed_through_the_other_handle(
        self, store: Store, other: Store
    ) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        assert list(await other.heads(["t"])) == [head]
        moved = (await store.commit(append_owned(head, thought()))).thread
        assert list(await other.heads(["t"])) == [moved]

    async def test_lease_renewed_through_one_handle_holds_for_the_other(
        self, store: Store, other: Store, clock: SettableClock
    ) -> None:
        store.renew("o", 60)
        await store.commit(start_run("t", owner="o"))
        with pytest.raises(errors.LeaseHeld):
            await other.claim("t", "p")
        assert await other.orphans() == []
        clock.advance(60)
        assert [thread.thread_id for thread in await other.orphans()] == ["t"]

    async def test_owner_retired_through_one_handle_is_gone_for_the_other(
        self, store: Store, other: Store
    ) -> None:
        store.renew("o", 60)
        old = (await store.commit(start_run("t", owner="o"))).thread
        await store.retire("o")
        assert (await other.claim("t", "p")).owner == "p"
        with pytest.raises(errors.LeaseLost):
            await store.commit(append_owned(old, thought()))

    async def test_run_marked_through_one_handle_is_watched_for_the_other(
        self, store: Store, other: Store, clock: SettableClock
    ) -> None:
        await store.mark_watched(["r"])
        clock.advance(3)
        assert await other.unwatched_for("r") == 3
        await other.mark_watched(["r"])
        assert await store.unwatched_for("r") == 0

    async def test_both_handles_count_together(self, store: Store, other: Store) -> None:
        for number in range(1, 6):
            assert list(await store.count([count("k", 1)])) == [2 * number - 1]
            assert list(await other.count([count("k", 1)])) == [2 * number]
        assert await other.sums("") == await store.sums("") == {"k": 10}

    async def test_commit_sent_again_through_the_other_handle_is_stored_once(
        self, store: Store, other: Store
    ) -> None:
        commit = start_run("t")
        first = await store.commit(commit)
        assert (await other.commit(commit)).events == first.events
        assert len(await every_event(store, "t")) == 1

    async def test_one_of_many_decisions_through_two_handles_wins(self, both: list[Store]) -> None:
        head = (await both[0].commit(start_run("t"))).thread
        for name in ("a", "b", "c"):
            head = (await both[0].commit(ask(head, name))).thread
        for name in ("a", "b", "c"):
            await decided_once(both, name)
        types = [event.type for event in await every_event(both[1], "t")]
        assert types.count("approval_decided") == 3

    async def test_writers_through_two_handles_leave_no_gap(self, both: list[Store]) -> None:
        await both[0].commit(start_run("t"))
        async with asyncio.timeout(60):
            writers = (append_until_stored(both[n % 2], "t", str(n)) for n in range(16))
            await asyncio.gather(*writers)
        assert [event.seq for event in await every_event(both[0], "t")] == list(range(1, 18))

    async def test_thread_deleted_through_one_handle_can_be_made_through_the_other(
        self, store: Store, other: Store
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        await other.thread("t")
        await store.delete("t", next_seq=head.next_seq)
        assert (await other.commit(start_run("t", "run-2"))).thread.next_seq == 2
        assert [event.run_id for event in await every_event(store, "t")] == ["run-2"]

    async def test_handle_with_an_old_picture_sees_a_thread_made_again_as_it_is(
        self, store: Store, other: Store
    ) -> None:
        for life in range(20):
            # Longer each time, as a log that only grew would be.
            made = await store.commit(start_run("t", f"run-{life}"))
            head = made.thread
            for _ in range(life):
                head = (await store.commit(append(head, thought()))).thread
            assert await other.thread("t") == head
            log = await every_event(other, "t")
            assert {event.run_id for event in log[:1]} == {f"run-{life}"}
            assert log == await every_event(store, "t")
            await store.delete("t", next_seq=head.next_seq)

    async def test_reader_of_a_thread_that_another_handle_deletes_finds_it_whole_or_not_at_all(
        self, store: Store, other: Store
    ) -> None:
        await read_while_deleting(store, other)

    async def test_decision_is_not_made_twice_by_a_handle_with_an_old_picture(
        self, store: Store, other: Store
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(ask(head, "a"))
        await other.thread("t")
        await store.commit(decide("t", "a"))
        found = await other.find("approval", "a")
        assert found is not None
        assert not found.open

    async def test_four_processes_decide_each_approval_once(
        self, store: Store, store_url: str
    ) -> None:
        for number in range(APPROVALS // 10):
            names = [f"a{number * 10 + n}" for n in range(10)]
            await store.commit(create(f"t{number}", *map(approval, names)))
        won = await run_workers("decide", store_url, str(APPROVALS))
        assert sum(won) == APPROVALS
        decided = [
            event.model_dump()["approval_id"]
            for number in range(APPROVALS // 10)
            for event in await every_event(store, f"t{number}")
            if event.type == "approval_decided"
        ]
        assert sorted(decided) == sorted(f"a{number}" for number in range(APPROVALS))

    async def test_four_processes_fill_a_counter_exactly(
        self, store: Store, store_url: str
    ) -> None:
        added = await run_workers("count", store_url, str(COUNTED))
        assert sum(added) == COUNTED
        # Each step adds to both; a refused one to neither.
        assert dict(await store.sums("")) == {"steps": COUNTED, "full": COUNTED}

    async def test_four_processes_append_to_one_thread_without_gaps(
        self, store: Store, store_url: str
    ) -> None:
        await store.commit(start_run("t"))
        stored = await run_workers("append", store_url, str(APPENDS))
        assert stored == [APPENDS] * PROCESSES
        log = await every_event(store, "t")
        assert [event.seq for event in log] == list(range(1, 2 + PROCESSES * APPENDS))
        texts = {event.model_dump()["content"] for event in log[1:]}
        assert texts == {f"{p}.{n}" for p in range(PROCESSES) for n in range(APPENDS)}
