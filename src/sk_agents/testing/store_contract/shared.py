from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from sk_agents.engine.ports import Store
from sk_agents.exceptions import LeaseHeld, LeaseLost
from sk_agents.testing.clock import SettableClock
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
from sk_agents.testing.store_contract.case import MakeStore, StoreCases, every_event
from sk_agents.testing.store_contract.deletion import read_while_deleting
from sk_agents.testing.store_contract.races import append_until_stored, decided_once

PROCESSES = 4
APPROVALS = 200
APPENDS = 25


async def run_workers(*arguments: str) -> list[int]:
    """The counts that as many processes report, all started before any of them begins."""
    command = [sys.executable, "-m", "sk_agents.testing.store_worker", *arguments]
    workers = [
        await asyncio.create_subprocess_exec(
            *command, str(number), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
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
        with pytest.raises(LeaseHeld):
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
        with pytest.raises(LeaseLost):
            await store.commit(append_owned(old, thought()))

    async def test_run_marked_through_one_handle_is_watched_for_the_other(
        self, store: Store, other: Store, clock: SettableClock
    ) -> None:
        await store.mark_watched(["r"])
        clock.advance(3)
        assert await other.unwatched_for("r") == 3
        await other.mark_watched(["r"])
        assert await store.unwatched_for("r") == 0

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
            await asyncio.gather(
                *(append_until_stored(both[n % 2], "t", str(n)) for n in range(16))
            )
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
