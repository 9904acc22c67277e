from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sk_agents.engine.models import Durability
from sk_agents.engine.ports import Store
from sk_agents.exceptions import (
    ApprovalAlreadyDecided,
    CommitReused,
    InvalidInput,
    LeaseLost,
    StateCorrupt,
    ThreadNotFound,
)
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import (
    append,
    append_owned,
    ask,
    create,
    decide,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import MakeStore, StoreCases, every_event, snapshot
from sk_agents.testing.store_contract.event_types import BARE, WHOLE
from sk_agents.testing.store_contract.texts import TEXTS, TOO_DEEP

# Damages the stored record of a closed store's thread, which holds one commit; returns how to
# read the damaged bytes.
Damage = Callable[[str], Callable[[], bytes]]


class DurableCases(StoreCases):
    """What a store was told before it was closed it knows when it is opened again.

    The fixture `damage` gives a function that changes a byte in the stored record of a thread
    whose log is one commit, while no store is open, and returns a function that reads the record's
    bytes.
    """

    async def test_store_keeps_more_than_nothing(self, store: Store) -> None:
        assert store.durability is not Durability.D0

    async def test_everything_reads_the_same_after_reopening(
        self, make_store: MakeStore, clock: SettableClock
    ) -> None:
        async with make_store(clock) as store:
            head = (await store.commit(start_run("t", owner="o"))).thread
            await store.commit(ask(head, "a", park=True))
            await store.commit(create("u", metadata={"deep": {"n": [1, None]}}))
            before = await snapshot(store, "t", "u")
        async with make_store(clock) as store:
            assert await snapshot(store, "t", "u") == before

    async def test_every_event_type_reads_the_same_after_reopening(
        self, make_store: MakeStore, clock: SettableClock
    ) -> None:
        async with make_store(clock) as store:
            committed = await store.commit(create("t", *WHOLE, *BARE))
        async with make_store(clock) as store:
            assert await every_event(store, "t") == list(committed.events)

    async def test_every_text_reads_the_same_after_reopening(
        self, make_store: MakeStore, clock: SettableClock
    ) -> None:
        async with make_store(clock) as store:
            committed = await store.commit(create("t", *map(thought, TEXTS.values())))
        async with make_store(clock) as store:
            assert await every_event(store, "t") == list(committed.events)

    async def test_deep_value_does_not_make_the_thread_unreadable(
        self, make_store: MakeStore, clock: SettableClock
    ) -> None:
        from_model = WHOLE[4].model_copy(update={"arguments": TOO_DEEP})
        async with make_store(clock) as store:
            head = (await store.commit(start_run("t"))).thread
            with pytest.raises(InvalidInput):
                await store.commit(append(head, from_model))
        async with make_store(clock) as store:
            assert len(await every_event(store, "t")) == 1

    async def test_commit_is_recognised_after_reopening(
        self, make_store: MakeStore, clock: SettableClock
    ) -> None:
        commit = create("t", *WHOLE)
        async with make_store(clock) as store:
            first = await store.commit(commit)
        async with make_store(clock) as store:
            assert (await store.commit(commit)).events == first.events
            with pytest.raises(CommitReused):
                await store.commit(replace(commit, events=(thought("other"),)))
            assert len(await every_event(store, "t")) == len(WHOLE)

    async def test_stale_owner_is_fenced_after_reopening(
        self, make_store: MakeStore, clock: SettableClock
    ) -> None:
        async with make_store(clock) as store:
            old = (await store.commit(start_run("t", owner="o"))).thread
            new = await store.claim("t", "p")
        async with make_store(clock) as store:
            with pytest.raises(LeaseLost):
                await store.commit(append_owned(old, thought()))
            await store.commit(append_owned(new, thought()))

    async def test_decision_stands_after_reopening(
        self, make_store: MakeStore, clock: SettableClock
    ) -> None:
        async with make_store(clock) as store:
            head = (await store.commit(start_run("t"))).thread
            await store.commit(ask(head, "a", park=True))
            await store.commit(decide("t", "a", "rejected"))
        async with make_store(clock) as store:
            with pytest.raises(ApprovalAlreadyDecided):
                await store.commit(decide("t", "a"))

    async def test_deleted_thread_stays_deleted_after_reopening(
        self, make_store: MakeStore, clock: SettableClock
    ) -> None:
        async with make_store(clock) as store:
            head = (await store.commit(start_run("t"))).thread
            await store.delete("t", next_seq=head.next_seq)
        async with make_store(clock) as store:
            with pytest.raises(ThreadNotFound):
                await store.thread("t")
            assert await store.find("run", "run-1") is None

    async def test_log_goes_on_without_a_gap_after_reopening(
        self, make_store: MakeStore, clock: SettableClock
    ) -> None:
        async with make_store(clock) as store:
            await store.commit(start_run("t"))
        for number in range(5):
            async with make_store(clock) as store:
                head = await store.thread("t")
                await store.commit(append(head, thought(str(number))))
        async with make_store(clock) as store:
            assert [event.seq for event in await every_event(store, "t")] == [1, 2, 3, 4, 5, 6]

    async def test_damaged_record_is_an_error_of_its_own_thread(
        self, make_store: MakeStore, clock: SettableClock, damage: Damage
    ) -> None:
        async with make_store(clock) as store:
            await store.commit(start_run("damaged", "run-1"))
            await store.commit(start_run("whole", "run-2"))
        read_bytes = damage("damaged")
        before = read_bytes()
        async with make_store(clock) as store:
            with pytest.raises(StateCorrupt):
                await every_event(store, "damaged")
            head = await store.thread("whole")
            assert head in await store.heads(["damaged", "whole"])
            await store.commit(append(head, thought()))
            assert len(await every_event(store, "whole")) == 2
            await store.commit(start_run("new", "run-3"))
        assert read_bytes() == before

    async def test_damaged_record_stays_an_error_when_read_again(
        self, make_store: MakeStore, clock: SettableClock, damage: Damage
    ) -> None:
        async with make_store(clock) as store:
            await store.commit(start_run("damaged"))
        damage("damaged")
        for _ in range(2):
            async with make_store(clock) as store:
                for _ in range(2):
                    with pytest.raises(StateCorrupt):
                        await every_event(store, "damaged")
