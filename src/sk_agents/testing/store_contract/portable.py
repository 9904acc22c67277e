"""Whole threads are taken out of a store and put into another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sk_agents import exceptions as errors
from sk_agents.engine.log.chain import last_chain
from sk_agents.engine.log.commits import Claim, Owned, Quiet
from sk_agents.engine.models import Thread
from sk_agents.engine.ports import PortableStore, StoredRecord
from sk_agents.testing.commits import (
    append,
    ask,
    create,
    decide,
    new_commit,
    run_ended,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import KINDS, StoreCases, every_event, snapshot
from sk_agents.testing.store_contract.contents import BARE, TEXTS, WHOLE


async def filled(store: PortableStore) -> list[str]:
    """Threads of all shapes: without events, with every kind of them, with open and decided
    approvals, owned, parked and ended, of several users."""
    await store.commit(create("bare", metadata={"deep": {"n": [1, None]}}, user="bob"))
    await store.commit(create("every", *WHOLE, *BARE))
    await store.commit(create("texts", *map(thought, TEXTS.values())))
    head = (await store.commit(start_run("asked", "run-asked", owner="o"))).thread
    head = (await store.commit(ask(head, "a1"))).thread
    await store.commit(ask(head, "a2", park=True))
    await store.commit(decide("asked", "a1", run_id="run-asked"))
    head = (await store.commit(start_run("ended", "run-ended"))).thread
    head = (await store.commit(append(head, run_ended("run-ended")))).thread
    await store.commit(new_commit("ended", Quiet(head.next_seq), lease=Claim("o")))
    return ["asked", "bare", "ended", "every", "texts"]


async def emptied(store: PortableStore) -> list[tuple[Thread, Sequence[StoredRecord]]]:
    """Everything, which is then deleted."""
    taken = [await store.whole_thread(thread_id) for thread_id in await store.all_threads()]
    for thread, _ in taken:
        await store.delete(thread.thread_id, next_seq=thread.next_seq)
    assert await store.all_threads() == []
    return taken


class PortableCases(StoreCases):
    @pytest.fixture
    def portable(self, store: PortableStore) -> PortableStore:
        return store

    async def test_all_threads_of_all_users_are_listed_in_order(
        self, portable: PortableStore
    ) -> None:
        ids = await filled(portable)
        assert list(await portable.all_threads()) == ids
        pages = [await portable.all_threads(limit=2)]
        while page := await portable.all_threads(after=pages[-1][-1], limit=2):
            pages.append(page)
        assert [list(page) for page in pages] == [ids[:2], ids[2:4], ids[4:]]

    async def test_restored_threads_read_as_they_did(self, portable: PortableStore) -> None:
        ids = await filled(portable)
        before = await snapshot(portable, *ids)
        found = [await portable.find(kind, key) for kind in KINDS for key in ("a1", "run-ended")]
        for thread, records in await emptied(portable):
            await portable.restore(thread, records)
        assert await snapshot(portable, *ids) == before
        assert found == [
            await portable.find(kind, key) for kind in KINDS for key in ("a1", "run-ended")
        ]

    async def test_restored_thread_goes_on(self, portable: PortableStore) -> None:
        await filled(portable)
        for thread, records in await emptied(portable):
            await portable.restore(thread, records)
        await portable.commit(decide("asked", "a2", run_id="run-asked"))
        head = await portable.claim("asked", "p")
        await portable.commit(append(head, thought()))
        log = await every_event(portable, "asked")
        assert [event.seq for event in log] == list(range(1, len(log) + 1))

    async def test_commit_of_a_restored_thread_is_recognised(self, portable: PortableStore) -> None:
        commit = start_run("t")
        first = await portable.commit(commit)
        for thread, records in await emptied(portable):
            await portable.restore(thread, records)
        assert (await portable.commit(commit)).events == first.events
        assert len(await every_event(portable, "t")) == 1

    async def test_thread_that_is_there_is_not_replaced(self, portable: PortableStore) -> None:
        await portable.commit(start_run("t"))
        thread, records = await portable.whole_thread("t")
        head = (await portable.commit(append(thread, thought()))).thread
        with pytest.raises(errors.ThreadExists):
            await portable.restore(thread, records)
        assert await portable.thread("t") == head

    async def test_log_with_a_hole_is_not_restored(self, portable: PortableStore) -> None:
        head = (await portable.commit(start_run("t"))).thread
        await portable.commit(append(head, thought()))
        [(thread, records)] = await emptied(portable)
        moved = [records[0], replace(records[1], first_seq=3)]
        for wrong in (records[1:], records[:1], moved, [*records, records[1]]):
            with pytest.raises(errors.StateCorrupt):
                await portable.restore(thread, wrong)
        assert await portable.all_threads() == []

    async def test_head_chains_every_record_of_its_log(self, portable: PortableStore) -> None:
        for thread_id in await filled(portable):
            thread, records = await portable.whole_thread(thread_id)
            assert thread.chain == last_chain(thread, records)
            assert bool(thread.chain) is bool(records)

    async def test_commits_sent_at_once_are_chained_in_their_order(
        self, portable: PortableStore
    ) -> None:
        await portable.commit(start_run("t", owner="o"))
        thread = await portable.thread("t")
        guard = Owned("o", thread.epoch)
        commits = [new_commit("t", guard, thought(text)) for text in "abcd"]
        await asyncio.gather(*map(portable.commit, commits))
        thread, records = await portable.whole_thread("t")
        assert len(records) == 5
        assert thread.chain == last_chain(thread, records)

    async def test_chain_goes_on_after_a_claim_and_a_restoration(
        self, portable: PortableStore
    ) -> None:
        await filled(portable)
        for thread, records in await emptied(portable):
            await portable.restore(thread, records)
        await portable.commit(decide("asked", "a2", run_id="run-asked"))
        head = await portable.claim("asked", "p")
        await portable.commit(append(head, thought()))
        thread, records = await portable.whole_thread("asked")
        assert thread.chain == last_chain(thread, records) != head.chain

    async def test_log_that_is_not_what_its_head_chains_is_not_restored(
        self, portable: PortableStore
    ) -> None:
        await portable.commit(start_run("t"))
        [(thread, [record])] = await emptied(portable)
        changed = replace(record, body=record.body.replace(b"run_started", b"run_starteD"))
        with pytest.raises(errors.StateCorrupt):
            await portable.restore(thread, [changed])
        assert await portable.all_threads() == []

    async def test_unknown_thread_is_not_taken(self, portable: PortableStore) -> None:
        with pytest.raises(errors.ThreadNotFound):
            await portable.whole_thread("nothing")
