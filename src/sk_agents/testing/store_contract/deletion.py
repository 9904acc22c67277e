from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sk_agents.engine.ports import Store, ThreadQuery
from sk_agents.exceptions import LeaseHeld, SequenceConflict, ThreadNotFound
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import (
    USER,
    append,
    append_owned,
    approval,
    ask,
    create,
    decide,
    run_started,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import KINDS, StoreCases, every_event, snapshot

ROUNDS = 25
READERS = 4
LENGTH = 8


async def make_and_delete(store: Store, rounds: int = ROUNDS) -> None:
    """A thread that comes and goes, as long as this each time."""
    for number in range(rounds):
        head = (await store.commit(start_run("t", f"run-{number}", text="hello"))).thread
        for _ in range(LENGTH - 1):
            head = (await store.commit(append(head, thought("hello", f"run-{number}")))).thread
        await asyncio.sleep(0)
        await store.delete("t", next_seq=head.next_seq)


async def read_until(store: Store, ended: asyncio.Event) -> None:
    """Read everything again and again: whole and of one life each time, or not there."""
    query = ThreadQuery(user_id=USER, text="hello")
    while not ended.is_set():
        try:
            log = await store.events_after("t", 0)
            assert [event.seq for event in log] == list(range(1, len(log) + 1))
            assert len({event.run_id for event in log}) == 1
            await store.events_after("t", LENGTH // 2)
            await store.thread("t")
        except ThreadNotFound:
            pass
        for page in (await store.threads(query), await store.threads(query)):
            assert len(page.threads) <= 1
        await store.orphans()
        await store.open_entries("run", USER)
        await asyncio.sleep(0)


async def read_while_deleting(writer: Store, reader: Store) -> None:
    ended = asyncio.Event()
    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        for _ in range(READERS):
            group.create_task(read_until(reader, ended))
        await make_and_delete(writer)
        ended.set()


class DeletionCases(StoreCases):
    """A thread is deleted as a whole, iff nobody holds it and nothing was appended."""

    async def test_deleted_thread_is_gone_with_all_it_had(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        head = (await store.commit(ask(head, "a"))).thread
        await store.delete("t", next_seq=head.next_seq)
        for read in (store.thread("t"), store.events_after("t", 0), store.claim("t", "o")):
            with pytest.raises(ThreadNotFound):
                await read
        assert await store.find("run", "run-1") is None
        assert await store.find("approval", "a") is None
        for kind in KINDS:
            assert await store.open_entries(kind, USER) == []
        assert (await store.threads(ThreadQuery(USER))).threads == ()
        assert await store.orphans() == []

    async def test_deletion_is_refused_after_an_append(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        await store.commit(append(head, thought()))
        before = await snapshot(store, "t")
        with pytest.raises(SequenceConflict):
            await store.delete("t", next_seq=head.next_seq)
        assert await snapshot(store, "t") == before

    async def test_deletion_is_refused_while_a_live_owner_holds_the_thread(
        self, store: Store, clock: SettableClock
    ) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        before = await snapshot(store, "t")
        with pytest.raises(LeaseHeld):
            await store.delete("t", next_seq=head.next_seq)
        assert await snapshot(store, "t") == before
        clock.advance(60)
        await store.delete("t", next_seq=head.next_seq)

    async def test_deletion_of_an_unknown_thread_is_not_found(self, store: Store) -> None:
        with pytest.raises(ThreadNotFound):
            await store.delete("nothing", next_seq=1)

    async def test_second_deletion_is_not_found(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        await store.delete("t", next_seq=head.next_seq)
        with pytest.raises(ThreadNotFound):
            await store.delete("t", next_seq=head.next_seq)

    async def test_lost_owner_cannot_write_to_a_deleted_thread(self, store: Store) -> None:
        head = (await store.commit(start_run("t", owner="o"))).thread
        await store.delete("t", next_seq=head.next_seq)
        for commit in (append_owned(head, thought()), append(head, thought()), decide("t", "a")):
            with pytest.raises(ThreadNotFound):
                await store.commit(commit)

    async def test_deleted_thread_can_be_made_again_and_is_empty(self, store: Store) -> None:
        first = start_run("t", "run-1")
        head = (await store.commit(first)).thread
        await store.delete("t", next_seq=head.next_seq)
        committed = await store.commit(start_run("t", "run-2"))
        assert (committed.thread.next_seq, committed.thread.epoch) == (2, 0)
        assert [event.run_id for event in await every_event(store, "t")] == ["run-2"]
        assert await store.find("run", "run-1") is None

    async def test_thread_made_again_takes_nothing_meant_for_the_deleted_one(
        self, store: Store
    ) -> None:
        store.renew("o", 60)
        old = (await store.commit(start_run("t", "run-1", owner="o"))).thread
        await store.retire("o")
        await store.delete("t", next_seq=old.next_seq)
        store.renew("o", 60)
        new = (await store.commit(start_run("t", "run-2", owner="o"))).thread
        assert (new.next_seq, new.epoch, new.owner) == (old.next_seq, old.epoch, old.owner)
        before = await snapshot(store, "t")
        for commit in (
            append_owned(old, thought()),
            append_owned(old, thought(), next_seq=old.next_seq),
            append(old, thought()),
        ):
            with pytest.raises(ThreadNotFound):
                await store.commit(replace(commit, incarnation=old.incarnation))
            with pytest.raises(ThreadNotFound):
                await store.events_after("t", 0, incarnation=old.incarnation)
        assert await snapshot(store, "t") == before
        await store.retire("o")
        with pytest.raises(ThreadNotFound):
            await store.delete("t", next_seq=new.next_seq, incarnation=old.incarnation)
        await store.delete("t", next_seq=new.next_seq, incarnation=new.incarnation)

    async def test_every_commit_leaves_the_incarnation_as_it_was(self, store: Store) -> None:
        made = (await store.commit(start_run("t"))).thread
        assert made.incarnation
        head = (await store.commit(append(made, thought()))).thread
        claimed = await store.claim("t", "o")
        stored = await store.thread("t")
        assert {head.incarnation, claimed.incarnation, stored.incarnation} == {made.incarnation}
        page = await store.events_after("t", 0, incarnation=made.incarnation)
        assert [event.seq for event in page] == [1, 2]

    async def test_deletion_leaves_the_other_threads(self, store: Store) -> None:
        await store.commit(create("t", run_started("run-1"), approval("a")))
        await store.commit(create("u", run_started("run-2"), approval("b")))
        before = await snapshot(store, "u")
        await store.delete("t", next_seq=3)
        after = await snapshot(store, "u")
        assert after["u"] == before["u"]
        assert [entry.key for entry in after["entries"]] == ["b"]
        assert await store.find("run", "run-2") is not None

    async def test_reader_of_a_thread_that_is_deleted_finds_it_whole_or_not_at_all(
        self, store: Store
    ) -> None:
        await read_while_deleting(store, store)
