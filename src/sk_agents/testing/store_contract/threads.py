"""What a thread promises.

- A thread is made by its first commit and reads back as it was made.
- The head says at any time what its log says.
- A thread is deleted as a whole, iff no live owner holds it and nothing was appended.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sk_agents.engine.events import BranchChanged, Imported, RunStarted, ThreadChanged
from sk_agents.engine.log.commits import Absent, Claim, ClaimIfFree
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import Durability, NewThread, RunStatus, ThreadStatus
from sk_agents.engine.ports import Store, ThreadQuery
from sk_agents.exceptions import LeaseHeld, SequenceConflict, ThreadExists, ThreadNotFound
from sk_agents.testing.commits import (
    USER,
    append,
    append_owned,
    approval,
    ask,
    cancel_requested,
    create,
    decide,
    new_commit,
    run_ended,
    run_queued,
    run_started,
    start_run,
    thought,
)
from sk_agents.testing.predictable import SettableClock
from sk_agents.testing.store_contract.case import KINDS, StoreCases, every_event, refused, snapshot

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
    """Read everything again and again: whole and of one incarnation each time, or not there."""
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


class ThreadCases(StoreCases):
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

    async def test_started_run_is_active_and_the_tip(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        assert (head.status, head.runnable) == (ThreadStatus.RUNNING, True)
        assert (head.active_run, head.head_run) == ("run-1", "run-1")

    async def test_ended_run_leaves_its_status(self, store: Store) -> None:
        for end in (
            run_ended(status=RunStatus.COMPLETED),
            run_ended(status=RunStatus.FAILED),
            run_ended(status=RunStatus.CANCELLED),
        ):
            head = (await store.commit(start_run(f"t-{end.status}"))).thread
            head = (await store.commit(append(head, end))).thread
            assert (head.status, head.active_run) == (ThreadStatus(end.status), None)
            assert (head.head_run, head.runnable) == ("run-1", False)

    async def test_queued_runs_are_counted(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        head = (await store.commit(append(head, run_queued("run-2"), run_queued("run-3")))).thread
        assert (head.queued, head.active_run) == (2, "run-1")
        started = RunStarted(run_id="run-2")
        head = (await store.commit(append(head, run_ended(), started))).thread
        assert (head.queued, head.active_run, head.runnable) == (1, "run-2", True)
        cancelled = run_ended("run-3", RunStatus.CANCELLED)
        head = (await store.commit(append(head, cancelled))).thread
        assert (head.queued, head.active_run, head.runnable) == (0, "run-2", True)

    async def test_idle_thread_with_a_queue_is_runnable_until_the_queue_is_empty(
        self, store: Store
    ) -> None:
        head = (await store.commit(create("t", run_queued("run-1")))).thread
        assert (head.runnable, head.status) == (True, ThreadStatus.IDLE)
        head = (await store.commit(append(head, run_ended("run-1", RunStatus.CANCELLED)))).thread
        assert (head.runnable, head.queued) == (False, 0)

    async def test_cancel_is_in_the_log_and_claims_a_free_thread(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        committed = await store.commit(append(head, cancel_requested(), lease=ClaimIfFree("o")))
        assert (committed.thread.owner, committed.thread.runnable) == ("o", True)
        run = fold(await every_event(store, "t")).runs["run-1"]
        assert run.cancel_requested is not None

    async def test_cancel_is_in_the_log_of_the_live_owner_and_leaves_the_lease(
        self, store: Store
    ) -> None:
        store.renew("o", 60)
        head = (await store.commit(start_run("t", owner="o"))).thread
        committed = await store.commit(append(head, cancel_requested(), lease=ClaimIfFree("p")))
        assert (committed.thread.owner, committed.thread.epoch) == ("o", head.epoch)
        assert [event.type for event in await store.events_after("t", 1)] == ["cancel_requested"]
        await store.commit(append_owned(head, thought()))

    async def test_cancel_of_a_parked_run_makes_it_runnable(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        head = (await store.commit(ask(head, "a", park=True))).thread
        assert not head.runnable
        head = (await store.commit(append(head, cancel_requested()))).thread
        assert head.runnable

    async def test_cancel_of_an_idle_thread_leaves_it_idle(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        head = (await store.commit(append(head, run_ended()))).thread
        head = (await store.commit(append(head, cancel_requested()))).thread
        assert not head.runnable

    async def test_metadata_merges_and_none_removes(self, store: Store) -> None:
        head = (await store.commit(create("t", metadata={"title": "a", "keep": 1}))).thread
        change = ThreadChanged(metadata={"title": "b", "new": [1, {"x": None}]})
        head = (await store.commit(append(head, change))).thread
        assert head.metadata == {"title": "b", "keep": 1, "new": [1, {"x": None}]}
        await store.commit(append(head, ThreadChanged(metadata={"title": None, "absent": None})))
        assert (await store.thread("t")).metadata == {"keep": 1, "new": [1, {"x": None}]}

    async def test_branch_moves_the_tip_to_a_run_or_to_the_root(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        second = (run_started("run-2"), run_ended("run-2"))
        head = (await store.commit(append(head, run_ended(), *second))).thread
        head = (await store.commit(append(head, BranchChanged(head_run="run-1")))).thread
        assert head.head_run == "run-1"
        head = (await store.commit(append(head, BranchChanged(head_run=None)))).thread
        assert head.head_run is None
        assert fold(await every_event(store, "t")).head_run is None

    async def test_imported_history_sets_the_status(self, store: Store) -> None:
        head = (await store.commit(create("t", Imported(status=ThreadStatus.FAILED)))).thread
        assert head.status is ThreadStatus.FAILED
        head = (await store.commit(append(head, Imported()))).thread
        assert head.status is ThreadStatus.FAILED

    async def test_head_agrees_with_the_fold_of_its_log(self, store: Store) -> None:
        head = (await store.commit(start_run("t"))).thread
        for events in (
            [run_queued("run-2")],
            [thought(), run_ended()],
            [RunStarted(run_id="run-2")],
            [ThreadChanged(metadata={"title": "x"})],
            [cancel_requested("run-2"), run_ended("run-2", RunStatus.CANCELLED)],
            [BranchChanged(head_run="run-1")],
        ):
            head = (await store.commit(append(head, *events))).thread
            state = fold(await every_event(store, "t"))
            assert (state.next_seq, state.status) == (head.next_seq, head.status)
            assert (state.active_run, state.head_run) == (head.active_run, head.head_run)
            assert (len(state.queue), state.metadata) == (head.queued, head.metadata)

    async def test_writing_moves_the_last_change_and_leaves_the_creation(
        self, store: Store, clock: SettableClock
    ) -> None:
        head = (await store.commit(start_run("t"))).thread
        clock.advance(5)
        later = (await store.commit(append(head, thought()))).thread
        assert later.created_at == head.created_at
        assert later.updated_at == head.updated_at + timedelta(seconds=5)

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
