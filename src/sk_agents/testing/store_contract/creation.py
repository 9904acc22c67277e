from __future__ import annotations

from typing import Any

import pytest

from sk_agents.engine.events import ThreadChanged
from sk_agents.engine.log.commits import Absent, Claim
from sk_agents.engine.models import Durability, NewThread, ThreadStatus
from sk_agents.engine.ports import Store, ThreadQuery
from sk_agents.exceptions import ThreadExists, ThreadNotFound
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import USER, append, create, new_commit, start_run, thought
from sk_agents.testing.store_contract.case import StoreCases, every_event, refused


class CreationCases(StoreCases):
    """A thread is made by its first commit and reads back as it was made."""

    async def test_created_thread_reads_back_as_the_commit_returned_it(self, store: Store) -> None:
        committed = await store.commit(start_run("t", owner="o"))
        assert await store.thread("t") == committed.thread
        assert await every_event(store, "t") == list(committed.events)

    async def test_created_thread_has_what_it_was_created_with(
        self, store: Store, clock: SettableClock
    ) -> None:
        new = NewThread(
            user_id="bob",
            session_id="s",
            wire_id="w",
            surface="chats",
            agent="a",
            metadata={"title": "x", "deep": {"list": [1, None, True, 0.5]}},
            expires_at=clock.now(),
        )
        await store.commit(new_commit("t", Absent(new)))
        head = await store.thread("t")
        assert (head.thread_id, head.user_id, head.session_id) == ("t", "bob", "s")
        assert (head.wire_id, head.surface, head.agent) == ("w", "chats", "a")
        assert head.metadata == {"title": "x", "deep": {"list": [1, None, True, 0.5]}}
        assert head.expires_at == head.created_at == head.updated_at == clock.now()

    async def test_thread_without_events_is_idle_and_empty(self, store: Store) -> None:
        await store.commit(create("t"))
        head = await store.thread("t")
        assert (head.status, head.next_seq, head.epoch) == (ThreadStatus.IDLE, 1, 0)
        assert (head.owner, head.runnable, head.active_run) == (None, False, None)
        assert await every_event(store, "t") == []

    async def test_first_commit_may_claim(self, store: Store) -> None:
        committed = await store.commit(create("t", lease=Claim("o")))
        assert (committed.thread.owner, committed.thread.epoch) == ("o", 1)

    async def test_second_creation_is_refused(self, store: Store) -> None:
        await store.commit(start_run("t"))
        await refused(store, start_run("t", "run-2"), ThreadExists)

    async def test_second_creation_by_another_user_is_refused(self, store: Store) -> None:
        await store.commit(start_run("t"))
        await refused(store, start_run("t", user="eve"), ThreadExists)
        assert (await store.thread("t")).user_id == USER

    async def test_unknown_thread_is_not_found(self, store: Store) -> None:
        with pytest.raises(ThreadNotFound):
            await store.thread("nothing")

    async def test_events_are_numbered_from_one_and_dated_by_the_store(
        self, store: Store, clock: SettableClock
    ) -> None:
        committed = await store.commit(create("t", thought("a"), thought("b")))
        assert [event.seq for event in committed.events] == [1, 2]
        assert {event.at for event in committed.events} == {clock.now()}

    async def test_threads_are_separate(self, store: Store) -> None:
        await store.commit(start_run("t", "run-1"))
        await store.commit(start_run("u", "run-2"))
        assert [event.run_id for event in await every_event(store, "t")] == ["run-1"]
        assert [event.run_id for event in await every_event(store, "u")] == ["run-2"]

    async def test_metadata_given_is_not_shared_with_the_store(self, store: Store) -> None:
        metadata: dict[str, Any] = {"title": "first", "deep": {"n": 1}}
        head = (await store.commit(create("t", metadata=metadata))).thread
        metadata["title"] = "changed"
        metadata["deep"]["n"] = 2
        assert (await store.thread("t")).metadata == {"title": "first", "deep": {"n": 1}}
        await store.commit(append(head, thought()))
        assert (await store.thread("t")).metadata == {"title": "first", "deep": {"n": 1}}

    async def test_metadata_returned_is_not_shared_with_the_store(self, store: Store) -> None:
        head = (await store.commit(create("t", metadata={"deep": {"n": 1}}))).thread
        head.metadata["deep"]["n"] = 2
        (await store.thread("t")).metadata["deep"]["n"] = 3
        (await store.threads(ThreadQuery(USER))).threads[0].metadata["deep"]["n"] = 4
        assert (await store.thread("t")).metadata == {"deep": {"n": 1}}
        await store.commit(append(head, thought()))
        assert (await store.thread("t")).metadata == {"deep": {"n": 1}}

    async def test_events_given_and_returned_are_not_shared_with_the_store(
        self, store: Store
    ) -> None:
        labels = {"deep": {"n": 1}}
        event = ThreadChanged(metadata=labels)
        committed = await store.commit(create("t", event))
        event.metadata["deep"]["n"] = 2
        for known in (*committed.events, *await every_event(store, "t")):
            assert isinstance(known, ThreadChanged)
            known.metadata["deep"]["n"] = 3
        (stored,) = await every_event(store, "t")
        assert isinstance(stored, ThreadChanged)
        assert stored.metadata == {"deep": {"n": 1}}
        assert (await store.thread("t")).metadata == {"deep": {"n": 1}}

    async def test_store_says_what_it_keeps(self, store: Store) -> None:
        assert store.durability in Durability

    async def test_open_store_answers_a_ping(self, store: Store) -> None:
        await store.ping()

    async def test_metrics_are_numbers_by_name(self, store: Store) -> None:
        await store.commit(start_run("t"))
        for name, value in store.metrics().items():
            assert isinstance(name, str)
            assert isinstance(value, int | float)
