from __future__ import annotations

from datetime import timedelta

from sk_agents.engine.events import BranchChanged, Imported, ThreadChanged
from sk_agents.engine.log.commits import ClaimIfFree
from sk_agents.engine.log.state import fold
from sk_agents.engine.models import RunStatus, ThreadStatus
from sk_agents.engine.ports import Store
from sk_agents.testing.clock import SettableClock
from sk_agents.testing.commits import (
    append,
    append_owned,
    ask,
    cancel_requested,
    create,
    run_ended,
    run_queued,
    run_started,
    start_run,
    thought,
)
from sk_agents.testing.store_contract.case import StoreCases, every_event


class HeadCases(StoreCases):
    """The head says at any time what its log says."""

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
        head = (
            await store.commit(
                append(head, run_ended(), run_started("run-2").model_copy(update={"message": None}))
            )
        ).thread
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
        head = (
            await store.commit(append(head, run_ended(), run_started("run-2"), run_ended("run-2")))
        ).thread
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
            [run_started("run-2").model_copy(update={"message": None})],
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
